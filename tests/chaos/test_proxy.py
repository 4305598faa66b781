"""The proxy passes on what it should pass on, and spoils what it should spoil."""

import contextlib
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagedoor.chaos.proxy import Mode, Proxy, Spoil

REPLY = b"*2\r\n$2\r\nhi\r\n:1\r\n"
SOON_S = 0.3
LIMIT_S = 20.0


@pytest.fixture
def upstream(socket_folder: Path) -> Iterator[Path]:
    """A server that says the same to everything it is told, in two pieces."""
    path = socket_folder / f"echo-{random.getrandbits(32):x}"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while connection.recv(1000):
                connection.sendall(REPLY[:5])
                connection.sendall(REPLY[5:])

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield path
    server.shutdown(socket.SHUT_RDWR)
    server.close()


@pytest.fixture
def proxy(upstream: Path) -> Iterator[Proxy]:
    with Proxy(upstream, rng=random.Random(1)) as proxy:
        yield proxy


def connect(proxy: Proxy) -> socket.socket:
    host, _, port = proxy.url.removeprefix("redis://").removesuffix("/0").partition(":")
    return socket.create_connection((host, int(port)), timeout=LIMIT_S)


def ask(client: socket.socket, wanted: int) -> bytes:
    """Say something and return so many bytes of what comes."""
    client.sendall(b"PING\r\n")
    found = b""
    while len(found) < wanted:
        more = client.recv(wanted - len(found))
        if not more:
            break
        found += more
    return found


def ask_on(client: socket.socket) -> None:
    """Ask until there is no answer."""
    while ask(client, len(REPLY)):
        pass


def test_replies_pass_whole(proxy: Proxy) -> None:
    with connect(proxy) as client:
        assert [ask(client, len(REPLY)) for _ in range(3)] == [REPLY] * 3
    assert proxy.spoiled == 0


def test_a_reply_comes_twice(proxy: Proxy) -> None:
    proxy.mode = Mode(spoil=Spoil.DOUBLE)
    with connect(proxy) as client:
        assert ask(client, 2 * len(REPLY)) == REPLY * 2
    assert proxy.spoiled == 1


def test_a_reply_becomes_an_error(proxy: Proxy) -> None:
    proxy.mode = Mode(spoil=Spoil.REFUSE, error="LOADING wait")
    with connect(proxy) as client:
        assert ask(client, len(b"-LOADING wait\r\n")) == b"-LOADING wait\r\n"


@pytest.mark.parametrize("spoil", [Spoil.DROP, Spoil.FREEZE])
def test_a_reply_does_not_come(proxy: Proxy, spoil: Spoil) -> None:
    proxy.mode = Mode(spoil=spoil)
    with connect(proxy) as client:
        client.settimeout(SOON_S)
        with pytest.raises(TimeoutError):
            ask(client, 1)
        proxy.mode = Mode()
        client.settimeout(LIMIT_S)
        assert ask(client, len(REPLY)) == REPLY, "the connection stands, and what was dropped stays away"


def test_a_connection_is_reset_and_a_new_one_refused(proxy: Proxy) -> None:
    with connect(proxy) as client:
        assert ask(client, len(REPLY)) == REPLY
        proxy.mode = Mode(spoil=Spoil.RESET)
        with pytest.raises(ConnectionResetError):
            ask_on(client)
    with pytest.raises(ConnectionResetError), connect(proxy) as client:
        ask_on(client)


def test_a_share_of_the_replies_is_spoiled(proxy: Proxy) -> None:
    proxy.mode = Mode(spoil=Spoil.REFUSE, error="E" * (len(REPLY) - 3), share=0.5)
    with connect(proxy) as client:
        refused = sum(ask(client, len(REPLY)).startswith(b"-E") for _ in range(100))
    assert 25 < refused < 75
    assert proxy.spoiled == refused
