"""An order book is published in one namespace: the first relay's, until somebody moves it."""

import functools
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
import trio

from stagedoor.broker.connection import Link
from stagedoor.cli import wiring
from stagedoor.cli.app import run
from stagedoor.cli.findings_book import of_namespace
from stagedoor.core.keys import Keys
from stagedoor.orders import OrderBook, PublishedElsewhere
from stagedoor.settings import Settings
from tests.relay.fixtures import Rig

type Command = Callable[..., tuple[int, str]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command that is refused before it starts anything, on this test's book."""
    monkeypatch.setenv("STAGEDOOR_ORDERS_URL", f"sqlite:///{tmp_path}/book.db")
    monkeypatch.setenv("STAGEDOOR_TICKETS_DIR", str(tmp_path / "tickets"))
    monkeypatch.setenv("STAGEDOOR_REDIS_URL", "unix:///nowhere/redis.sock")
    # Warming up renderers takes seconds, and nothing of it is looked at here.
    monkeypatch.setattr(wiring, "load_plugins", lambda *_args, **_kwargs: None)

    def call(*words: str) -> tuple[int, str]:
        return run(words), capsys.readouterr().err

    return call


def test_the_first_relay_writes_its_namespace_and_others_of_it_are_welcome(book: OrderBook) -> None:
    assert book.outbox.namespace() is None
    book.outbox.publish_in("jobs")
    book.outbox.publish_in("jobs")
    assert book.outbox.namespace() == "jobs"
    assert book.outbox.highest_seq("jobs") == 0


def test_a_book_of_an_earlier_release_remembers_it_from_its_next_relay_on(book: OrderBook, tmp_path: Path) -> None:
    with book._database.write() as connection:
        kept = connection.exec_driver_sql("SELECT key FROM book ORDER BY key").scalars().all()
    assert kept == ["id", "schema"], "what a book had before there was a namespace in it, is what a new one has"
    url = f"sqlite:///{tmp_path}/book.db"
    with wiring.open_outbox(url, "jobs") as outbox:
        assert outbox.namespace() == "jobs"


def test_another_namespace_is_refused_with_the_way_out(book: OrderBook) -> None:
    book.outbox.publish_in("jobs")
    with pytest.raises(PublishedElsewhere, match=r"published in 'jobs'.* set to 'other'.*--move-book"):
        book.outbox.publish_in("other")
    assert book.outbox.namespace() == "jobs"


@pytest.mark.parametrize("words", [("relay",), ("worker", "--relay")], ids=["relay", "worker"])
def test_the_commands_end_with_code_2(book: OrderBook, command: Command, words: tuple[str, ...]) -> None:
    book.outbox.publish_in("jobs")
    code, said = command(*words, "--namespace", "other")
    assert code == 2
    assert "namespace: this order book is published in 'jobs'" in said
    assert "python -m stagedoor relay --namespace other --move-book" in said
    assert "Traceback" not in said


def test_a_doctor_that_looks_elsewhere_says_so() -> None:
    assert list(of_namespace(None, Settings())) == list(of_namespace("jobs", Settings())) == []
    [finding] = of_namespace("other", Settings())
    assert (finding.about, finding.level) == ("namespace", "wrong")
    assert "published in other, and this is jobs" in finding.seen


@pytest.mark.redis
async def test_a_book_that_is_moved_is_published_there_and_nothing_is_offered_twice(
    rig: Rig, redis_url: str, namespace: str, tmp_path: Path
) -> None:
    rig.book.outbox.publish_in(namespace)
    rig.place(3)
    await rig.relay(namespace=namespace).relay_once()
    rig.place(2)
    new = namespace + "-new"
    with wiring.open_outbox(f"sqlite:///{tmp_path}/book.db", new, is_moving=True) as outbox:
        there = attrs.evolve(rig, link=Link(redis_url, block_ms=0), keys=Keys(new))
        relay = there.relay(outbox=outbox, namespace=new)
        assert not await relay.check_once(), "the old counts are no loss here"
        assert (await relay.relay_once()).added == 2
        assert not await relay.check_once()
        assert there.outbox_ids() == [4, 5]
        there.link.close()
    assert rig.outbox_ids() == [1, 2, 3]


@pytest.mark.redis
@pytest.mark.parametrize("is_idle", [True, False], ids=["idle", "busy"])
async def test_a_relay_that_was_forgotten_ends_when_the_book_is_moved(
    rig: Rig, namespace: str, *, is_idle: bool
) -> None:
    rig.book.outbox.publish_in(namespace)
    rig.place()
    ended = trio.Event()

    async def run_relay() -> None:
        with pytest.raises(PublishedElsewhere):
            await rig.relay(namespace=namespace).run()
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_relay)
        with trio.fail_after(20):
            await rig.heard["rows_published"].wait()
            await trio.to_thread.run_sync(functools.partial(rig.book.outbox.publish_in, "other", is_moving=True))
            if not is_idle:
                rig.place(3)
            await ended.wait()
    # What it may have added before it looked is in its own namespace, once.
    assert sorted(rig.outbox_ids()) in ([1], [1, 2, 3, 4])
