"""A private server that is durable comes back with what it had, with what it had then, or with nothing."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagedoor.broker.connection import Link
from stagedoor.broker.private_server import PrivateRedis

pytestmark = [pytest.mark.redis, pytest.mark.process]


@pytest.fixture
def server(redis_program: str, tmp_path: Path) -> Iterator[PrivateRedis]:
    with PrivateRedis(tmp_path / "log", program=redis_program, is_durable=True) as server:
        yield server


def value(server: PrivateRedis, *, new: str = "") -> bytes | None:
    """Return what the server knows, and let it know something new."""
    with contextlib.closing(Link(server.url)) as link:
        found: bytes | None = link.patient.get("k")  # type: ignore[assignment]  # the client is a synchronous one
        if new:
            link.patient.set("k", new)
        return found


def test_it_comes_back_with_all_that_it_had_said(server: PrivateRedis) -> None:
    value(server, new="one")
    url = server.url
    server.kill()
    server.start_again()
    assert (value(server), server.url) == (b"one", url)


def test_it_comes_back_with_a_copy_that_was_made_while_it_ran(server: PrivateRedis, tmp_path: Path) -> None:
    value(server, new="one")
    server.copy_data(tmp_path / "old")
    value(server, new="two")
    server.kill()
    server.start_again(tmp_path / "old")
    assert value(server, new="three") == b"one"
    server.kill()
    server.start_again()
    assert value(server) == b"three"


def test_it_comes_back_with_nothing(server: PrivateRedis) -> None:
    value(server, new="one")
    server.kill()
    server.start_again(is_empty=True)
    assert value(server) is None


def test_one_that_is_not_durable_keeps_nothing_and_leaves_nothing(redis_program: str, tmp_path: Path) -> None:
    with PrivateRedis(tmp_path / "log", program=redis_program) as server:
        folder = server.socket.parent
        value(server, new="one")
        server.kill()
        server.start_again()
        assert value(server) is None
    assert not folder.exists()


def test_it_starts_also_where_temporary_files_have_long_paths(
    redis_program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a build machine, or in the temporary folder that a desktop gives to each user."""
    deep = tmp_path / ("a" * 60) / ("b" * 60)
    deep.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with PrivateRedis(tmp_path / "log", program=redis_program) as server:
        assert value(server) is None
    assert not server.socket.parent.exists()
