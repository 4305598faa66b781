"""The content key: the name of a document, known before it is drawn.

Two requests have one key only if every value that a renderer may look at is the
same, and the renderer is the same in name, version and fingerprint. So there is
no list of things that invalidate a cached document: whatever changes, the key
changes with it.

The values are written down as JSON with the class of every object beside its
fields. That is unambiguous (strings are quoted, nothing is concatenated), does
not depend on the hash seed, the locale or the Python version, and costs little:
the encoder is C.
"""

import datetime as dt
import functools
import hashlib
import json
import operator
from collections.abc import Callable
from typing import Any

import attrs

from stagedoor.errors import InvalidRequest
from stagedoor.order import Order
from stagedoor.rendering.api import Renderer, RenderRequest

_FORMAT = "stagedoor content key 2"
"""Goes into every key; a change in how keys are made must change it."""


def content_key(request: RenderRequest, renderer: Renderer) -> str:
    """Return the SHA-256, in hex, of all that decides what *renderer* draws for *request*.

    Raises:
        InvalidRequest: a value has no single written form: a time without a zone, or
            a type that orders do not have. Names the field.
    """
    parts = [
        _FORMAT,
        renderer.name,
        renderer.version,
        renderer.content_type,
        renderer.suffix,
        renderer.fingerprint(),
        _order_digest(request.order),
        *(_written(getattr(request, name), name) for name in _BESIDE_THE_ORDER),
    ]
    return _digest(parts)


_BESIDE_THE_ORDER = tuple(field.name for field in attrs.fields(RenderRequest) if field.name != "order")


def _order_digest(order: Order) -> str:
    try:
        return _digest_of_order(order)
    except TypeError:
        # Something in it cannot be hashed, so it is none of the types of orders: `_written` says which.
        return _digest(_written(order, "order"))


@functools.lru_cache(64)  # a pure function of a frozen value, asked once for each of the order's positions
def _digest_of_order(order: Order) -> str:
    return _digest(_written(order, "order"))


def _digest(written: Any) -> str:
    return hashlib.sha256(json.dumps(written, ensure_ascii=True, separators=(",", ":")).encode("ascii")).hexdigest()


def _written(value: Any, field: str) -> Any:
    """Return *value* in terms that JSON keeps apart; *field* is for the error only."""
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, tuple):
        return ["", *(_written(item, field) for item in value)]
    if isinstance(value, dt.datetime):
        return _written_time(value, field)
    cls: type[Any] = type(value)
    if attrs.has(cls):
        head, names, read = _shape(cls)
        return [head, *(_written(item, name) for name, item in zip(names, read(value), strict=True))]
    raise InvalidRequest(f"{field}: {type(value).__name__} has no place in an order")


def _written_time(value: dt.datetime, field: str) -> list[str]:
    if value.utcoffset() is None:
        raise InvalidRequest(f"{field}: the time has no zone; give it in UTC")
    return ["datetime", value.astimezone(dt.UTC).isoformat()]


@functools.cache  # a pure function of a class: the cache is a table of our own handful of classes
def _shape(cls: type[attrs.AttrsInstance]) -> tuple[str, tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """Return what stands for the class in a key, its field names, and a reader of all of them."""
    names = tuple(field.name for field in attrs.fields(cls))
    getter = operator.attrgetter(*names)
    # attrgetter of one name answers the bare value, not a tuple of one.
    read = getter if len(names) > 1 else lambda value: (getter(value),)
    return f"{cls.__name__}({','.join(names)})", names, read
