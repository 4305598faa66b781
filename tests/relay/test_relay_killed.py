"""SIGKILL between publishing and marking, in a real process."""

import signal
import subprocess
import sys

import pytest
import trio

from tests.relay.fixtures import Rig

CHILD = """
import sys, trio
from pathlib import Path
from stagedoor.broker.connection import Link
from stagedoor.broker.redis import RedisPublishing
from stagedoor.core.keys import Keys
from stagedoor.events import EventStream
from stagedoor.orders import OrderBook
from stagedoor.relay import Relay

url, folder, redis_url, namespace = sys.argv[1:]
book = OrderBook.open(url, tickets_dir=Path(folder))
mark = book.outbox.mark_published

def mark_slowly(rows):
    print("published", flush=True)
    sys.stdin.readline()
    return mark(rows)

book.outbox.mark_published = mark_slowly
relay = Relay(book.outbox, RedisPublishing(Link(redis_url), Keys(namespace)), events=EventStream(), every_s=0.001)
trio.run(relay.run)
"""


def run_until_killed(arguments: list[str], *, marks: int) -> None:
    """Run a relay, let it mark that many batches, and kill it between publishing the next one and marking it."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        try:
            for _ in range(marks):
                assert child.stdout.readline() == "published\n"
                child.stdin.write("go on\n")
                child.stdin.flush()
            assert child.stdout.readline() == "published\n"
        finally:
            child.send_signal(signal.SIGKILL)


@pytest.mark.process
@pytest.mark.redis
def test_sigkill_between_publish_and_mark_neither_loses_nor_doubles(rig: Rig, redis_url: str) -> None:
    rig.place(250)
    database = rig.book.outbox._database.engine.url.render_as_string()
    arguments = [database, str(rig.book.store.root), redis_url, rig.keys.namespace]
    for marks in (0, 1):
        run_until_killed(arguments, marks=marks)
    assert len(rig.rows()) == 200

    async def finish() -> None:
        relay = rig.relay()
        with trio.fail_after(30):
            while (await relay.relay_once()).taken:
                pass

    trio.run(finish)

    assert sorted(rig.outbox_ids()) == list(range(1, 251))
    assert len(rig.rows()) == 250
