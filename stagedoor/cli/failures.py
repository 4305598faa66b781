"""From exceptions to lines and exit codes: what the person at the terminal can act on is no traceback.

Ours, the operator's, the plugin's and the world's faults are different classes
(`stagedoor.errors`), and each has its exit code here. What is none of them is a
fault of Stagedoor itself and keeps its traceback.
"""

from collections.abc import Iterator

from stagedoor.cli.text import printable
from stagedoor.errors import (
    BrokerError,
    BrokerUnavailable,
    ConfigurationError,
    FlowLimitExceeded,
    OrderError,
    RendererError,
)

FAILED = 1
MISCONFIGURED = 2
INTERRUPTED = 130
"""128 and the number of SIGINT, as shells say it."""

_LONGEST = 2000


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions inside nested groups; an exception that is no group yields itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def explain(error: BaseException) -> tuple[list[str], int] | None:
    """Return the lines to print and the exit code, or None for a fault that is Stagedoor's own.

    A group is explained only when all that is in it can be; the gravest decides the code.
    """
    lines: dict[str, None] = {}
    code = 0
    for leaf in leaves(error):
        match leaf:
            case ConfigurationError():
                lines.update(dict.fromkeys(leaf.problems))
                code = MISCONFIGURED
            case BrokerUnavailable():
                lines[f"Redis cannot be asked now: {leaf}"] = None
                code = max(code, FAILED)
            case BrokerError():
                advice = "; python -m stagedoor doctor names the key" if "WRONGTYPE" in str(leaf) else ""
                lines[f"Redis answered something that cannot be worked with: {leaf}{advice}"] = None
                code = max(code, FAILED)
            case FlowLimitExceeded() | OrderError() | RendererError():
                # Bad lines of a file come with a list of their own.
                lines.update(dict.fromkeys(getattr(leaf, "complaints", (str(leaf),))))
                code = max(code, FAILED)
            case KeyboardInterrupt():
                code = max(code, INTERRUPTED)
            case _:
                return None
    return [printable(line, _LONGEST) for line in lines], code
