"""Runs what the README and the guides show.

A comment in front of a block says what is done with it; blocks without one are only shown:

``<!-- file: name -->``    it is written to that file
``<!-- run: python -->``   it is run, in one module with the others of its page
``<!-- run: console -->``  its lines after ``$`` are run by a shell; what stands below each must be
                           in its output, where ``…`` stands for anything
``<!-- worker -->``        without a block: a worker with a relay runs until nothing is left to do but to wait;
                           ``<!-- worker: name -->``: one with this module as a plugin
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from stagedoor.broker.connection import Link
from stagedoor.broker.inspection import Inspection
from stagedoor.broker.scratch import Scratch
from stagedoor.core.call import CallState
from stagedoor.core.keys import Keys
from stagedoor.orders import OrderBook

FENCE = re.compile(
    r"^(?:<!-- (?P<verb>run|file|worker)(?:: (?P<what>\S+))? -->\n)?(?:```(?P<language>\w*)\n(?P<text>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
LIMIT_S = 90.0


@attrs.frozen(kw_only=True)
class Block:
    """One block of a page, and what is to be done with it; *verb* is empty for one that is only shown."""

    line: int
    verb: str
    what: str
    language: str
    text: str


def blocks_of(page: str) -> Iterator[Block]:
    """Yield the blocks of a page, from top to bottom."""
    for match in FENCE.finditer(page):
        if match["language"] is not None or match["verb"] == "worker":
            yield Block(
                line=page.count("\n", 0, match.start()) + 1,
                verb=match["verb"] or "",
                what=match["what"] or "",
                language=match["language"] or "",
                text=match["text"] or "",
            )


class Reader:
    """Somebody who does what a page says, in an empty folder and with a Redis namespace of their own.

    Args:
        folder: where files are written and commands run.
        environ: of the commands; has STAGEDOOR_REDIS_URL and STAGEDOOR_NAMESPACE.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        # `python` is the interpreter that runs the tests.
        path = os.pathsep.join([str(Path(sys.executable).parent), environ.get("PATH", os.defpath)])
        self._environ = {**environ, "PATH": path, "COLUMNS": "120", "NO_COLOR": "1"}
        self._module: dict[str, object] = {"__name__": "example"}

    def do(self, block: Block) -> None:
        """Do what a block says.

        Raises:
            AssertionError: a command has failed, or its output is another one.
        """
        match (block.verb, block.what):
            case ("file", name):
                path = self._folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, "utf-8")
            case ("run", "python"):
                code = compile("\n" * block.line + block.text, "example", "exec")
                exec(code, self._module)
            case ("run", "console"):
                for command, expected in sessions_of(block.text):
                    self._run(command, expected)
            case ("worker", module):
                self._work(module)
            case _:
                raise AssertionError(f"line {block.line}: what is 'run: {block.what}'?")

    def _run(self, command: str, expected: str) -> None:
        run = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert run.returncode == 0, f"$ {command}\n{run.stdout}"
        assert is_like(run.stdout, expected), f"$ {command}\nexpected:\n{expected}\nfound:\n{run.stdout}"

    def _work(self, module: str) -> None:
        environ = {**self._environ, "STAGEDOOR_PLUGINS": module}
        worker = subprocess.Popen([sys.executable, "-m", "stagedoor", "--relay"], cwd=self._folder, env=environ)
        link = Link(self._environ["STAGEDOOR_REDIS_URL"])
        keys = Keys(self._environ["STAGEDOOR_NAMESPACE"])
        scratch, inspection = Scratch(link, keys), Inspection(link, keys)
        try:
            with OrderBook.open(f"sqlite:///{self._folder}/stagedoor.db", tickets_dir=self._folder / "tickets") as book:
                deadline = time.monotonic() + LIMIT_S
                # Calls on both sides of the streams: what leaves one for the other is seen in either.
                while (
                    book.outbox.backlog().waiting
                    or _is_busy(inspection)
                    or scratch.leftovers().waiting
                    or _is_busy(inspection)
                ):
                    assert worker.poll() is None, "the worker has ended"
                    assert time.monotonic() < deadline, "the worker has not done its work"
                    time.sleep(0.02)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(LIMIT_S) == 0
        finally:
            worker.kill()
            worker.wait()
            link.close()


def _is_busy(inspection: Inspection) -> bool:
    """Return whether calls of flows run or sleep; those that wait for a signal wait for somebody."""
    calls = inspection.look_at_queues().calls
    return bool(calls[CallState.RUNNING] or calls[CallState.SLEEPING])


def sessions_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block with the output that is shown below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def is_like(found: str, shown: str) -> bool:
    """Return whether the output is what is shown, where spaces do not count and ``…`` stands for anything."""
    lines = [line for line in (" ".join(line.split()) for line in shown.splitlines()) if line]
    pattern = r"\n".join(".*" if line == "…" else ".*".join(map(re.escape, line.split("…"))) for line in lines)
    text = "\n".join(line for line in (" ".join(line.split()) for line in found.splitlines()) if line)
    return re.fullmatch(pattern, text, re.DOTALL) is not None
