"""``python -m stagedoor``: the command line, nothing else."""

from stagedoor.cli import main

if __name__ == "__main__":
    main()
