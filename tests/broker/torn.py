"""Tears scripts in two, as two commands of a client that dies in between would be."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
import redis

from stagedoor.broker import connection
from stagedoor.broker.connection import Script
from stagedoor.errors import BrokerError

_READING = (
    "GET", "GETBIT", "HEXISTS", "HGET", "HGETALL", "HMGET", "HSTRLEN", "PTTL", "TIME", "TYPE", "XINFO", "XLEN",
    "XPENDING", "XRANGE", "XREVRANGE", "ZRANGE", "ZRANGEBYSCORE", "ZSCORE",
)  # fmt: skip
_SEEN, _HERE = "torn:seen", "torn:here"
_PRELUDE = f"""
local plain, own = redis, 0
local reading = {{{", ".join(f"{name} = true" for name in _READING)}}}
local function counted(call)
  return function(name, ...)
    if not reading[name] then
      local place = '@name@ ' .. own
      local times = plain.call('HINCRBY', '{_SEEN}', place, 1)
      if plain.call('GET', '{_HERE}') == place .. ' ' .. times then error('TORN') end
      own = own + 1
    end
    return call(name, ...)
  end
end
local redis = setmetatable({{call = counted(plain.call), pcall = counted(plain.pcall)}}, {{__index = plain}})
"""


class Killed(BaseException):
    """The process is gone: nothing after it happens."""


@attrs.frozen
class Tear:
    """After the first *kept* writes of a script, when it has come so far so many *times*."""

    script: str
    kept: int
    times: int


class NeverReached(Exception):
    """Nothing was torn, and so nothing is known."""


class Scissors:
    """Counts the writes of all scripts, and tears one script between two of its own."""

    def __init__(self, client: "redis.Redis") -> None:
        self._client = client

    def forget(self) -> None:
        """Count from the beginning, and tear nothing."""
        self._client.delete(_SEEN, _HERE)

    def tears(self) -> list[Tear]:
        """Return where the scripts of the run so far could have been torn."""
        seen: Any = self._client.hgetall(_SEEN)
        places = ((*place.decode().split(" "), int(times)) for place, times in seen.items())
        return [
            Tear(script, int(kept), time) for script, kept, times in places if int(kept) for time in range(1, times + 1)
        ]

    @contextmanager
    def tearing(self, tear: Tear) -> Iterator[None]:
        """Tear there while the block runs: once, by a process that is then gone.

        Raises:
            NeverReached: it did not come to that.
        """
        self.forget()
        self._client.set(_HERE, f"{tear.script} {tear.kept} {tear.times}")
        yield
        if self._client.exists(_HERE):
            raise NeverReached(tear)


def take_scissors(monkeypatch: pytest.MonkeyPatch, client: "redis.Redis") -> Scissors:
    """Let all scripts that are loaded from now on be countable; a torn one raises `Killed`."""
    whole, plainly = connection.read_script, Script.__call__

    def read_script(name: str) -> str:
        first, _, rest = whole(name).partition("\n")
        return f"{first}\n{_PRELUDE.replace('@name@', name)}{rest}"

    def call(script: Script, of: "redis.Redis", keys: Sequence[str], args: Sequence[Any]) -> Any:
        try:
            return plainly(script, of, keys, args)
        except BrokerError as error:
            if "TORN" not in str(error):
                raise
        client.delete(_HERE)
        raise Killed

    monkeypatch.setattr(connection, "read_script", read_script)
    monkeypatch.setattr(Script, "__call__", call)
    return Scissors(client)


def scripts_that_go_wrong(scissors: Scissors, scripts: set[str], tell: Callable[[], None]) -> set[str]:
    """Return those of *scripts* that must not be torn, for what is told ends in a broken promise then.

    It is told once whole, and then once for each place in between two writes of such a script.
    """
    scissors.forget()
    tell()
    tears = scissors.tears()
    assert {tear.script for tear in tears} >= scripts
    wrong: set[str] = set()
    for tear in tears:
        if tear.script in scripts - wrong and _goes_wrong(scissors, tear, tell):
            wrong.add(tear.script)
    return wrong


def _goes_wrong(scissors: Scissors, tear: Tear, tell: Callable[[], None]) -> bool:
    try:
        with scissors.tearing(tear):
            tell()
    except (AssertionError, pytest.fail.Exception):
        return True
    except NeverReached:
        pass
    return False
