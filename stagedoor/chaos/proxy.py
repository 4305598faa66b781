"""A TCP proxy between one process and Redis that can spoil what goes through it.

Each connection has two threads. Replies are taken apart where they end, so that
each of them is passed on whole, late, twice or not at all.
"""

import enum
import random
import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs

from stagedoor.chaos.resp import reply_length

CHUNK = 65_536
CONNECT_LIMIT_S = 2.0
LOOK_EVERY_S = 0.02


class Spoil(enum.Enum):
    """What a proxy does to what goes through it."""

    NOTHING = "nothing"
    DROP = "drop"
    """Replies vanish; what was asked for has happened."""
    DELAY = "delay"
    DOUBLE = "double"
    """Replies come twice."""
    FREEZE = "freeze"
    """Nothing moves either way, and nobody is told: a half-open connection."""
    RESET = "reset"
    """Connections are reset instead of being given a reply, and so are new ones."""
    REFUSE = "refuse"
    """A reply is replaced by an error of Redis, *error*; what was asked for has happened."""


@attrs.frozen(kw_only=True)
class Mode:
    """How a proxy is at the moment.

    Args:
        spoil: what it does.
        share: to this share of the replies, from 0 to 1.
        delay_s: how late, at most.
        error: the error's text, such as ``LOADING Redis is loading the dataset in memory``.
    """

    spoil: Spoil = Spoil.NOTHING
    share: float = 1.0
    delay_s: float = 0.0
    error: str = ""


class Proxy:
    """Listens on a port of 127.0.0.1 and passes everything on to Redis' unix socket.

    Args:
        upstream: the socket.
        rng: decides which replies are spoiled.
    """

    def __init__(self, upstream: Path, *, rng: random.Random) -> None:
        self._upstream = upstream
        self._rng = rng
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._open: set[socket.socket] = set()
        self._being_reset: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        self.mode = Mode()
        self.spoiled = 0
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    @property
    def url(self) -> str:
        """The address, as the setting `redis_url` takes it."""
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End all connections and listen no more."""
        self._is_closed = True
        self.mode = Mode()
        self._listener.close()
        self.reset_all()

    def reset_all(self) -> None:
        """Reset every connection that is open now."""
        with self._lock:
            open_now = list(self._open)
        for one in open_now:
            self._reset(one)

    # -- inside -------------------------------------------------------------------

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _address = self._listener.accept()
            except OSError:
                return
            if self.mode.spoil is Spoil.RESET:
                self.spoiled += 1
                self._reset(client)
                continue
            threading.Thread(target=self._serve, args=(client,), name="proxy", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.settimeout(CONNECT_LIMIT_S)
        try:
            server.connect(str(self._upstream))
        except OSError:
            server.close()
            self._reset(client)
            return
        server.settimeout(None)
        with self._lock:
            self._open |= {client, server}
        back = threading.Thread(target=self._pump, args=(server, client, True), name="proxy", daemon=True)
        back.start()
        self._pump(client, server, is_back=False)
        back.join()
        with self._lock:
            self._open -= {client, server}
            self._being_reset -= {client, server}
        client.close()
        server.close()

    def _pump(self, source: socket.socket, target: socket.socket, is_back: bool) -> None:  # noqa: FBT001 - a thread's argument
        waiting = bytearray()
        try:
            while data := source.recv(CHUNK):
                self._stand_still()
                if not is_back:
                    target.sendall(data)
                    continue
                waiting += data
                while waiting and (length := reply_length(waiting)) is not None:
                    self._pass_on(bytes(waiting[:length]), target)
                    del waiting[:length]
        except (OSError, ValueError):
            pass
        finally:
            for one in (source, target):
                # An orderly end would come before the reset.
                if one not in self._being_reset:
                    with suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)

    def _stand_still(self) -> None:
        is_new = True
        while self.mode.spoil is Spoil.FREEZE and not self._is_closed:
            self.spoiled += is_new
            is_new = False
            time.sleep(LOOK_EVERY_S)

    def _pass_on(self, reply: bytes, target: socket.socket) -> None:
        mode = self.mode
        if mode.spoil in {Spoil.NOTHING, Spoil.FREEZE} or self._rng.random() >= mode.share:
            target.sendall(reply)
            return
        self.spoiled += 1
        match mode.spoil:
            case Spoil.DELAY:
                time.sleep(self._rng.uniform(0, mode.delay_s))
                target.sendall(reply)
            case Spoil.DOUBLE:
                target.sendall(reply + reply)
            case Spoil.RESET:
                self._reset(target)
            case Spoil.REFUSE:
                target.sendall(f"-{mode.error}\r\n".encode())
            case _:
                return

    def _reset(self, one: socket.socket) -> None:
        """End a connection without a word: the other side sees a reset, whatever was on its way is lost."""
        self._being_reset.add(one)
        with suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with suppress(OSError):
            # Only this way, which wakes our own thread; the other would tell the other side that all is over.
            one.shutdown(socket.SHUT_RD)
        with suppress(OSError):
            one.close()
