"""Values as they are kept: JSON that comes back equal, or an error at once.

A step's value is built from and back to the type of its function's return
annotation. Without one it must be JSON as it stands. What does not come back
equal is refused when it is recorded: later it would be a surprise in another
process.
"""

import contextlib
import functools
import hashlib
import json
import threading
import types
import typing
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import cattrs.preconf.json

from stagedoor.core.call import MAX_VALUE_BYTES
from stagedoor.core.outcome import describe
from stagedoor.errors import InvalidValue

PLAIN: Any = Any
"""The type of a value that no annotation describes: JSON as it stands."""

_NONE = type(None)
_decode = json.JSONDecoder().raw_decode
_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode


@attrs.frozen
class Kept:
    """A value as it is kept, and as every later pass gets it."""

    text: str
    value: Any


class Values:
    """Turns values into text and back; one serves all threads.

    cattrs makes a type's functions when it first meets the type, and two threads must not
    make them at once: hence the lock, which nobody takes for a type that is known.
    """

    def __init__(self) -> None:
        self._converter = cattrs.preconf.json.make_converter()
        self._lock = threading.Lock()
        self._returned: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._built: set[Any] = set()

    def returned_by(self, function: Callable[..., Any]) -> Any:
        """Return the type that a function says it returns, `PLAIN` where it says nothing that can be understood."""
        inner = function.func if isinstance(function, functools.partial) else function
        inner = getattr(inner, "__func__", inner)
        if getattr(inner, "__annotate__", inner) is None:
            return PLAIN
        known = self._returned.get(inner) if isinstance(inner, types.FunctionType) else None
        if known is not None:
            return known
        try:
            found = typing.get_type_hints(inner).get("return", PLAIN)
        except Exception:  # noqa: BLE001 - an annotation is any expression, also one that cannot be evaluated here
            found = PLAIN
        if isinstance(inner, types.FunctionType):
            with self._lock:
                self._returned[inner] = found
        return found

    def keep(self, value: Any, kind: Any = PLAIN) -> Kept:
        """Return a value as JSON text, and as it will come back.

        Raises:
            InvalidValue: it is no JSON, would not come back equal, or is larger than 256 KiB.
        """
        text = self._as_text(value, kind)
        size = len(text) if text.isascii() else len(text.encode())
        if size > MAX_VALUE_BYTES:
            raise InvalidValue(
                f"a value of {size:,} bytes, expected at most {MAX_VALUE_BYTES:,}; keep it elsewhere, return its name"
            )
        try:
            back = self.revive(text, kind)
            is_equal = bool(back == value)
        except Exception as error:
            raise InvalidValue(f"{_shown(value)} could not be read back as {kind}: {describe(error)}") from error
        if not is_equal:
            raise InvalidValue(f"{_shown(value)} would come back as {_shown(back)}{_hint(kind)}")
        return Kept(text, back)

    def revive(self, text: str, kind: Any = PLAIN) -> Any:
        """Return the value that a text was made of."""
        # `json.loads` looks for spaces around the value first, which costs as much again.
        value = json.loads(text) if text[:1].isspace() or text[-1:].isspace() else _decode(text)[0]
        if _is_json(kind):
            return value
        self._build(kind)
        return self._converter.structure(value, kind)

    def digest_of(self, items: Sequence[Any]) -> str:
        """Return a short digest of a list of values.

        Raises:
            InvalidValue: one of them makes no JSON.
        """
        try:
            for kind in {type(item) for item in items}:
                self._build(kind)
            plain = [self._converter.unstructure(item) for item in items]
            text = json.dumps(plain, allow_nan=False, sort_keys=True, separators=(",", ":"))
        except Exception as error:
            raise InvalidValue(f"the items make no JSON: {describe(error)}") from error
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def _as_text(self, value: Any, kind: Any) -> str:
        try:
            if not _is_json(kind):
                self._build(kind)
                value = self._converter.unstructure(value, unstructure_as=kind)
            text = _encode(value)
        except Exception as error:
            raise InvalidValue(f"{_shown(value)} makes no JSON: {describe(error)}{_hint(kind)}") from error
        # Half a surrogate pair is no UTF-8, but its escape is JSON.
        return text if text.isascii() or _is_utf8(text) else json.dumps(value, allow_nan=False, separators=(",", ":"))

    def _build(self, kind: Any) -> None:
        try:
            if kind in self._built:
                return
        except TypeError:  # no hash: cattrs keeps nothing of it either
            return
        with self._lock:
            for make in (self._converter.get_structure_hook, self._converter.get_unstructure_hook):
                with contextlib.suppress(Exception):  # it will say so when it is used
                    make(kind)
            self._built.add(kind)


def _hint(kind: Any) -> str:
    return "; give the function a return annotation" if kind is PLAIN else ""


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_json(kind: Any) -> bool:
    """Return whether `json` gives values of this type back as they are; others are built by cattrs."""
    return kind is PLAIN or kind is _NONE or kind is str or kind is int or kind is bool or kind is object


def _shown(value: Any, limit: int = 80) -> str:
    try:
        text = ascii(value)
    except Exception:  # noqa: BLE001 - a type's own code may fail in any way
        return f"a {type(value).__qualname__}"
    return text if len(text) <= limit else f"{text[:limit]}…"
