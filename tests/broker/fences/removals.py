"""What a removal is, and how it is tried: one check is taken out of a script, and a history must go wrong."""

from collections.abc import Callable
from typing import Any, get_type_hints

import attrs
import pytest

from stagedoor.broker import connection
from tests.broker.harness import RedisHarness


@attrs.frozen
class Removal:
    """What is taken out of a script, and the history that then goes wrong."""

    script: str
    old: str
    new: str
    history: Callable[[Any], None]

    @property
    def is_for_every_broker(self) -> bool:
        """Whether the history can be told to the fake too: it asks for a broker, not for a real Redis."""
        return RedisHarness not in get_type_hints(self.history).values()


def check_goes_wrong(real: RedisHarness, monkeypatch: pytest.MonkeyPatch, removal: Removal) -> None:
    """See that the history is wrong without the check, and not for a script that does not run any more."""
    patch_script(monkeypatch, removal)
    with pytest.raises(AssertionError) as failed:
        removal.history(real)
    assert "user_script" not in str(failed.value), "the patched script is broken, which proves nothing"


def patch_script(monkeypatch: pytest.MonkeyPatch, removal: Removal) -> None:
    """Let every script be read without the check."""
    read_script = connection.read_script

    def patched(name: str) -> str:
        text: str = read_script(name)
        if name != removal.script:
            return text
        assert text.count(removal.old) == 1, f"{removal.old!r} is {text.count(removal.old)} times in {name}.lua"
        return text.replace(removal.old, removal.new)

    monkeypatch.setattr(connection, "read_script", patched)
    # The patched text must stand before a history begins, or its own assertion would pass for the history's.
    patched(removal.script)
