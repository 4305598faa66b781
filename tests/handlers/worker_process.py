"""A process that handles jobs one step at a time, on a leash.

It imports everything once, then forks a child for each connection to its unix
socket; the child opens the order book and does what the connection says, so that
a test may kill it with SIGKILL anywhere without paying for the imports again.

The talk is in lines. The child says ``pid N``. The test says ``KIND ORDER_ID
coarse`` or ``… fine``; the child says the name of the step that it stands
before, and takes it when the test says ``go``; ``done`` or ``failed REASON`` ends
the job. *coarse* stops before each transaction and each change of a file;
*fine* also before each SQL statement, each fsync and each rename.
"""

import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from stagedoor.orders import OrderBook
from tests.handlers.support import HANDLERS, FakeContext, FakeJob, Pause, SteppedBook


def main() -> None:
    address, url, tickets_dir = sys.argv[1:]
    # The children are nobody's business once they are gone.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen()
    print("ready", flush=True)
    while True:
        connection, _ = server.accept()
        if os.fork() == 0:
            server.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            serve(connection, url=url, tickets_dir=Path(tickets_dir))
            os._exit(0)
        connection.close()


def serve(connection: socket.socket, *, url: str, tickets_dir: Path) -> None:
    """Do what the connection says until it is closed."""
    lines = connection.makefile("r")

    def say(text: str) -> None:
        connection.sendall(f"{text}\n".encode())

    is_fine = False

    def pause(name: str) -> None:
        say(name)
        if lines.readline() != "go\n":
            os._exit(0)

    def pause_fine(name: str) -> None:
        if is_fine:
            pause(name)

    with OrderBook.open(url, tickets_dir=tickets_dir) as book:
        watch(book, pause_fine)
        say(f"pid {os.getpid()}")
        for line in lines:
            kind, order_id, mode = line.split()
            is_fine = mode == "fine"
            try:
                HANDLERS[kind](FakeJob(kind=kind, order_id=int(order_id)), FakeContext(SteppedBook(book, pause)))
                outcome = "done"
            except Exception as error:  # noqa: BLE001 - the test is told, and decides
                outcome = f"failed {type(error).__name__}: {error}".replace("\n", " ")
            is_fine = False
            say(outcome)


def watch(book: OrderBook, pause: Pause) -> None:
    """Stop before each SQL statement, each commit, each fsync and each rename."""
    engine = book._database.engine
    sa.event.listen(engine, "before_cursor_execute", lambda *args: pause(args[2].split()[0]))
    sa.event.listen(engine, "commit", lambda _: pause("COMMIT"))
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(descriptor: Any) -> None:
        pause("fsync")
        real_fsync(descriptor)

    def replace(self: Path, target: Any) -> Path:
        pause("rename")
        return real_replace(self, target)

    os.fsync = fsync  # type: ignore[assignment]  # this process is the test's own
    Path.replace = replace  # type: ignore[method-assign, assignment]  # this process is the test's own


if __name__ == "__main__":
    main()
