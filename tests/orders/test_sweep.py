"""Files that no ticket needs are removed, and never one that a commit needs or is about to need."""

import os
import threading
from pathlib import Path

import attrs
import pytest

from stagedoor.order import Order
from stagedoor.orders import NewTicket, OrderBook, TicketFileMissing
from stagedoor.orders import sweep as sweeping
from tests.orders.support import issue, order_data


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is old enough: nobody can set back the time at which a file was given its name."""
    monkeypatch.setattr(sweeping, "KEEP_S", 0.0)


def issued(book: OrderBook, order: Order) -> str:
    """Issue the only ticket of an order; returns its path."""
    assert issue(book, order)
    [ticket] = book.tickets(order.order_id)
    return ticket.path


def write(book: OrderBook, order: Order, key: str, *, version: int = 1) -> str:
    path = book.store.path(order.order_id, 1, version=version, key=key, suffix=".pdf")
    book.store.write(path, b"%PDF")
    return path


def leftover_paths(book: OrderBook) -> set[str]:
    return {one.path for one in book.leftovers(book.check_invariant())}


def test_what_was_killed_between_file_and_commit_is_swept_and_valid_tickets_stay(book: OrderBook, old: None) -> None:
    order, other = book.place(order_data()), book.place(order_data())
    valid = [issued(book, one) for one in (order, other)]
    killed = write(book, order, "killed")
    assert leftover_paths(book) == {killed}
    # Asked for too much, it removes no more than it may.
    assert [one.path for one in book.sweep([killed, *valid, "nowhere/else.pdf"])] == [killed]
    assert set(book.store.files()) == set(valid)
    assert book.sweep([killed]) == ()
    assert book.check_invariant().is_sound


def test_a_removal_that_was_interrupted_is_made_up_for(book: OrderBook, old: None) -> None:
    order = book.place(order_data())
    path = issued(book, order)
    book.refund(order.order_id)
    book.void_refunded(order.order_id)
    assert [one.path for one in book.sweep(leftover_paths(book))] == [path]


def test_files_of_an_order_that_is_not_in_the_book_are_swept(book: OrderBook, old: None) -> None:
    nobody = attrs.evolve(book.place(order_data()), order_id=4471)
    assert [one.path for one in book.sweep([write(book, nobody, "k")])] != []


def test_unfinished_files_are_swept_and_those_of_others_are_not_looked_at(book: OrderBook, old: None) -> None:
    order = book.place(order_data())
    path = issued(book, order)
    folder = book.store.file(path).parent
    name = f".{order.order_id}-1-1-key.pdf.0123456789ab.tmp"
    for stranger in (name, ".hidden", "notes.txt", ".1-1.tmp"):
        (folder / stranger).write_bytes(b"half")
    assert {Path(found).name for found in leftover_paths(book)} == {name}
    assert len(book.sweep(leftover_paths(book))) == 1
    assert sorted(file.name for file in folder.iterdir()) == sorted(
        [".1-1.tmp", ".hidden", "notes.txt", Path(path).name]
    )


def test_what_is_younger_than_an_hour_stays(book: OrderBook) -> None:
    order = book.place(order_data())
    path = write(book, order, "k")
    file = book.store.file(path)
    assert book.sweep([path]) == ()
    # The name was given just now, however old the content is: a version that took it over is under way.
    os.utime(file, (1.0, 1.0))
    assert book.sweep([path]) == ()
    assert file.exists()


def test_a_commit_whose_file_was_swept_is_refused_and_can_be_repeated(book: OrderBook, old: None) -> None:
    order = book.place(order_data())
    path = write(book, order, "k")
    files = [NewTicket(position_id=1, path=path, content_key="k", content_type="application/pdf")]
    assert len(book.sweep([path])) == 1
    with pytest.raises(TicketFileMissing):
        book.commit_tickets(order, files)
    write(book, order, "k")
    assert book.commit_tickets(order, files)


def test_a_commit_that_has_seen_its_file_keeps_it(book: OrderBook, old: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep comes exactly between a commit's look at its files and its end: it waits, and sees the ticket."""
    order = book.place(order_data())
    path = write(book, order, "k")
    swept: list[str] = []
    sweeper = threading.Thread(target=lambda: swept.extend(one.path for one in book.sweep([path])))
    is_about_to_lock = threading.Event()
    look, is_present = sweeping._look, type(book.store).is_present

    def tell(*args: object) -> object:
        is_about_to_lock.set()
        return look(*args)  # type: ignore[arg-type]  # passed on as they came

    def present(store: object, name: str) -> bool:
        found = is_present(book.store, name)
        monkeypatch.setattr(sweeping, "_look", tell)
        sweeper.start()
        assert is_about_to_lock.wait(20)
        sweeper.join(0.05)  # time for a sweep without a lock to do its harm
        return found

    monkeypatch.setattr(type(book.store), "is_present", present)
    files = [NewTicket(position_id=1, path=path, content_key="k", content_type="application/pdf")]
    assert book.commit_tickets(order, files)
    monkeypatch.setattr(type(book.store), "is_present", is_present)
    sweeper.join(20)
    assert swept == []
    assert book.check_invariant().is_sound


def test_names_that_only_look_like_ours_end_nothing(book: OrderBook, old: None) -> None:
    order = book.place(order_data())
    folder = book.store.file(issued(book, order)).parent
    killed = write(book, order, "killed")
    stranger = folder / f"{2**63}-1-1-key.pdf"
    stranger.write_bytes(b"x")
    for name in (f"{order.order_id}-1-1-folder.pdf", f".{order.order_id}-1-1-folder.pdf.0123456789ab.tmp"):
        (folder / name).mkdir()
        os.utime(folder / name, (0, 0))
    strangers = {path.relative_to(book.store.root).as_posix() for path in folder.iterdir() if path.is_dir()}
    asked = leftover_paths(book) | strangers
    assert book.store.file(stranger.relative_to(book.store.root).as_posix()).exists()
    assert [one.path for one in book.sweep(asked)] == [killed]
    book.store.tidy(book.reissue(order.order_id))
    assert len([path for path in folder.iterdir() if path.is_dir()]) == len(strangers)
