"""Ticket files: whole or not there, found by name, and never removed while somebody may need them."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from stagedoor.errors import Unavailable
from stagedoor.order import Order
from stagedoor.orders import TicketStore, TicketStoreUnavailable
from stagedoor.orders.parse import parse_order
from stagedoor.orders.rows import placed
from tests.orders.support import order_data


@pytest.fixture
def store(folder: Path) -> TicketStore:
    return TicketStore(folder / "tickets", book_id="0123456789abcdef")


def path_of(store: TicketStore, *, order: int = 4471, position: int = 1, version: int = 1, key: str = "ab" * 32) -> str:
    return store.path(order, position, version=version, key=key, suffix=".pdf")


def order_at(version: int, *, status: Any = "placed", order_id: int = 4471) -> Order:
    return attrs.evolve(placed(parse_order(order_data()), order_id), version=version, status=status)


def everything(store: TicketStore) -> list[str]:
    return sorted(file.name for file in store.root.rglob("*") if file.is_file())


def test_a_name_says_whose_ticket_it_is(store: TicketStore) -> None:
    assert path_of(store) == f"01234567/000/044/4471-1-1-{'ab' * 32}.pdf"
    assert path_of(store, order=123_456_789, position=7, version=3) == f"01234567/234/567/123456789-7-3-{'ab' * 32}.pdf"


def test_the_longest_name_fits(store: TicketStore) -> None:
    path = store.path(2**63 - 1, 2**63 - 1, version=2**63 - 1, key="a" * 128, suffix="." + "x" * 15)
    store.write(path, b"content")
    assert store.read(path) == b"content"


@pytest.mark.parametrize(
    "key, suffix",
    [("", ".pdf"), ("../x", ".pdf"), ("a/b", ".pdf"), ("a" * 129, ".pdf"), ("ab", "pdf"), ("ab", "./x"), ("ab", "..")],
)
def test_a_name_cannot_lead_elsewhere(key: str, suffix: str, store: TicketStore) -> None:
    with pytest.raises(ValueError, match="expected"):
        store.path(1, 1, version=1, key=key, suffix=suffix)


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x"])
def test_a_path_that_leads_out_of_the_folder_is_refused(path: str, store: TicketStore) -> None:
    with pytest.raises(ValueError, match="below the tickets folder"):
        store.file(path)


def test_a_file_is_there_with_its_content_and_nothing_beside_it(store: TicketStore) -> None:
    path = path_of(store)
    assert not store.is_present(path)
    store.write(path, b"first")
    store.make_durable([path])
    assert store.is_present(path)
    store.write(path, b"second")
    assert store.read(path) == b"second"
    assert everything(store) == [Path(path).name]


def test_an_empty_file_and_a_folder_are_not_present(store: TicketStore) -> None:
    path = path_of(store)
    store.write(path, b"")
    assert not store.is_present(path)
    assert not store.is_present(str(Path(path).parent))


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    store: TicketStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = path_of(store)
    store.write(path, b"old")

    def no_space(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(TicketStoreUnavailable, match="No space left"):
        store.write(path, b"new")
    assert store.read(path) == b"old"
    assert everything(store) == [Path(path).name]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.ESTALE])
@pytest.mark.parametrize("verb", ["write", "carry", "make_durable", "tidy"])
def test_a_folder_that_cannot_be_written_to_is_an_outage_and_no_attempt(
    store: TicketStore, monkeypatch: pytest.MonkeyPatch, verb: str, code: int
) -> None:
    """Whoever fills the disk must not have paid orders given up within half a minute."""
    path, other = path_of(store), path_of(store, version=2)
    store.write(path, b"old")
    acts: dict[str, Callable[[], object]] = {
        "write": lambda: store.write(path, b"new"),
        "carry": lambda: store.carry(path, other),
        "make_durable": lambda: store.make_durable([path]),
        "tidy": lambda: store.tidy(order_at(9)),
    }

    def fails(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fails)
    monkeypatch.setattr(Path, "replace", fails)
    monkeypatch.setattr(Path, "unlink", fails)
    with pytest.raises(TicketStoreUnavailable, match=os.strerror(code)) as raised:
        acts[verb]()
    assert isinstance(raised.value, Unavailable)


def test_a_name_that_is_too_long_is_no_outage(store: TicketStore) -> None:
    with pytest.raises(OSError, match="too long"):
        store.write(f"x/{'y' * 300}", b"")


def test_content_name_and_folders_are_synced_in_this_sequence(
    store: TicketStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        events.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().name.partition('-')[0]}")
        real_fsync(descriptor)

    def replace(self: Path, target: Path) -> Path:
        events.append("rename")
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    path = path_of(store)
    store.write(path, b"content")
    store.make_durable([path])
    assert events == ["sync .4471", "rename", "sync 044", "sync 000", "sync 01234567", "sync tickets"]
    events.clear()
    other = path_of(store, order=4472)
    store.write(other, b"content")
    store.make_durable([other, path])
    assert events == ["sync .4472", "rename", "sync 044"], "the folders above were synced once"


def test_tidying_removes_versions_that_are_over(store: TicketStore) -> None:
    paths = [path_of(store, version=version, position=position) for version in (1, 2, 3) for position in (1, 2)]
    neighbour = path_of(store, order=4472)
    for path in [*paths, neighbour]:
        store.write(path, b"content")
    assert sorted(store.tidy(order_at(2))) == paths[:2]
    assert [store.is_present(path) for path in paths] == [False, False, True, True, True, True]
    assert sorted(store.tidy(order_at(2, status="refunded"))) == paths[2:4]
    assert [store.is_present(path) for path in paths[4:]] == [True, True], "a later version is not this one's business"
    assert store.is_present(neighbour)
    assert store.tidy(order_at(2)) == []


def test_tidying_an_order_with_a_longer_id_is_not_misled_by_its_beginning(store: TicketStore) -> None:
    mine, other = path_of(store, order=44, position=71), path_of(store, order=4, position=4)
    store.write(mine, b"x")
    store.write(other, b"x")
    assert store.tidy(order_at(9, order_id=4)) == [other]
    assert store.is_present(mine)


def test_tidying_where_nothing_was_written_does_nothing(store: TicketStore) -> None:
    assert store.tidy(order_at(9, status="refunded", order_id=7)) == []


def test_tidying_removes_what_a_crash_left_an_hour_ago(store: TicketStore) -> None:
    path = path_of(store)
    store.write(path, b"content")
    fresh = store.file(path).with_name(f".{Path(path).name}.aaaa.tmp")
    stale = fresh.with_name(f".{Path(path).name}.bbbb.tmp")
    for file in (fresh, stale):
        file.write_bytes(b"half")
    os.utime(stale, (0, 0))
    store.tidy(order_at(1))
    assert everything(store) == sorted([Path(path).name, fresh.name])


def test_two_books_in_one_folder_leave_each_other_alone(store: TicketStore) -> None:
    other = TicketStore(store.root, book_id="fedcba9876543210")
    mine, theirs = path_of(store), path_of(other)
    store.write(mine, b"mine")
    other.write(theirs, b"theirs")
    store.tidy(order_at(2))
    assert list(other.files()) == [theirs]
    assert list(store.files()) == []


def test_removing_what_is_not_there_says_so(store: TicketStore) -> None:
    path = path_of(store)
    assert not store.remove(path)
    store.write(path, b"x")
    assert store.remove(path)


def test_a_ticket_is_carried_to_its_next_version(tmp_path: Path) -> None:
    store = TicketStore(tmp_path, book_id="b00k")
    old, new = (store.path(7, 1, version=version, key="k", suffix=".pdf") for version in (1, 2))
    assert not store.carry(old, new)
    store.write(old, b"ticket")
    assert store.carry(old, new)
    assert store.carry(old, new), "safe to repeat"
    store.remove(old)
    assert store.read(new) == b"ticket"
    assert list(store.files()) == [new]
    assert [path.name for path in store.file(new).parent.iterdir()] == [Path(new).name]


def test_a_ticket_is_copied_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    store = TicketStore(tmp_path, book_id="b00k")
    old, new = (store.path(7, 1, version=version, key="k", suffix=".pdf") for version in (1, 2))
    assert not store.carry(old, new)
    store.write(old, b"ticket")
    assert store.carry(old, new)
    assert store.read(new) == b"ticket"
