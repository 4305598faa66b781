"""Two worker processes on one SQLite order book, led step by step, and killed anywhere."""

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagedoor.orders import OrderBook, Rename
from tests.handlers.support import broken, run
from tests.orders.support import order_data

pytestmark = pytest.mark.process

RENDER = "render_tickets"
REFUND = "refund_order"
ROOT = Path(__file__).parents[2]


class Worker:
    """One child of the worker process, at the end of a leash."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(30)
        self._socket.connect(address)
        self._lines = self._socket.makefile("r")
        self.pid = int(self._read().removeprefix("pid "))
        self.at: str | None = None

    def start(self, kind: str, order_id: int, *, mode: str = "coarse") -> None:
        """Begin a job, and stop before its first step."""
        self._say(f"{kind} {order_id} {mode}")
        self._take(self._read())

    def step(self) -> None:
        """Take the step that it stands before."""
        self._say("go")
        self._take(self._read())

    def kill(self) -> None:
        """End it with SIGKILL where it stands; it is gone when this returns."""
        os.kill(self.pid, signal.SIGKILL)
        # The kernel closes its end of the socket when nothing of it runs any more, its locks gone as well.
        assert self._lines.read() == ""
        self.close()

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def _take(self, answer: str) -> None:
        assert not answer.startswith("failed"), answer
        self.at = None if answer == "done" else answer

    def _say(self, text: str) -> None:
        self._socket.sendall(f"{text}\n".encode())

    def _read(self) -> str:
        line = self._lines.readline()
        assert line, "the worker process is gone"
        return line.rstrip("\n")


@pytest.fixture
def book(folder: Path) -> Iterator[OrderBook]:
    """A new SQLite order book."""
    with OrderBook.open(f"sqlite:///{folder}/book.db", tickets_dir=folder / "tickets") as opened:
        yield opened


@pytest.fixture
def address(book: OrderBook, folder: Path) -> Iterator[str]:
    """The socket of a worker process for this book."""
    path = f"{folder}/worker.sock"
    program = [sys.executable, "-m", "tests.handlers.worker_process", path, str(book._database.engine.url)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    with subprocess.Popen(
        [*program, str(book.store.root)], stdout=subprocess.PIPE, cwd=ROOT, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield path
        process.kill()


def test_two_processes_in_random_schedules_keep_the_invariant(book: OrderBook, address: str) -> None:
    chance = random.Random(4471)
    workers = [Worker(address), Worker(address)]
    assert workers[0].pid != workers[1].pid
    schedules = set()
    for number in range(150):
        order_id = book.place(order_data(positions=1 + number % 2)).order_id
        owed = [RENDER, RENDER] if number % 4 == 0 else [RENDER]
        todo = chance.sample(["change", "refund", "change"], k=number % 4)
        taken: list[str] = []
        while owed or todo or any(worker.at for worker in workers):
            moves = [f"step {index}" for index, worker in enumerate(workers) if worker.at]
            moves += [f"start {index}" for index, worker in enumerate(workers) if owed and not worker.at]
            moves += ["shop"] if todo else []
            move, _, index = chance.choice(moves).partition(" ")
            taken.append(f"{move}{index}")
            if move == "shop":
                owed += shop(book, order_id, todo.pop())
            elif move == "start":
                workers[int(index)].start(owed.pop(chance.randrange(len(owed))), order_id)
            else:
                workers[int(index)].step()
        schedules.add(tuple(taken))
        assert broken(book, order_id) == [], f"after {taken}"
    assert len(schedules) > 130
    for worker in workers:
        worker.close()


def shop(book: OrderBook, order_id: int, action: str) -> list[str]:
    """Do what the shop does, and return what is owed for it."""
    if book.get(order_id).status == "refunded":
        return []
    if action == "refund":
        book.refund(order_id)
        return [REFUND]
    book.change(order_id, Rename(1, f"Version {book.get(order_id).version + 1}"))
    return [RENDER]


# What has happened when the worker dies, which job kills it, and what the shop does before the job comes back.
DEATHS = {
    "at the first render": (RENDER, "placed", "nothing"),
    "at the first render, then refunded": (RENDER, "placed", "refund"),
    "at the render of a new version": (RENDER, "changed", "nothing"),
    "at the render of a new version, then changed": (RENDER, "changed", "change"),
    "at the refund": (REFUND, "refunded", "nothing"),
}


@pytest.mark.parametrize("kind, before, after", DEATHS.values(), ids=DEATHS.keys())
def test_a_worker_killed_at_any_step_leaves_what_the_next_delivery_needs(
    kind: str, before: str, after: str, book: OrderBook, address: str
) -> None:
    steps: list[str] = []
    while True:
        order_id = book.place(order_data()).order_id
        if before != "placed":
            run(book, RENDER, order_id)
            shop(book, order_id, "refund" if before == "refunded" else "change")
        worker = Worker(address)
        worker.start(kind, order_id, mode="fine")
        for _ in steps:
            worker.step()
        if worker.at is None:
            worker.close()
            break
        steps.append(worker.at)
        worker.kill()
        owed = [kind, *shop(book, order_id, after)] if after != "nothing" else [kind]
        for each in owed if len(steps) % 2 else reversed(owed):
            run(book, each, order_id)
        assert broken(book, order_id) == [], f"killed before the last of {steps}"
    assert {"UPDATE", "COMMIT"} <= set(steps)
    assert kind == REFUND or {"fsync", "rename", "INSERT"} <= set(steps)


def test_a_killed_writer_does_not_keep_the_others_waiting(book: OrderBook, address: str) -> None:
    """SQLite's lock goes with its process; the next writer finds the book as it was before the transaction."""
    order_id = book.place(order_data()).order_id
    worker = Worker(address)
    worker.start(RENDER, order_id, mode="fine")
    while worker.at != "INSERT":
        worker.step()
    worker.kill()
    assert book.refund(order_id).version == 2
    assert book.tickets(order_id) == ()
