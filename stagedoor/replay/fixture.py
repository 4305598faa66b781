"""A fixture: a folder that tells one case, and says how it must end. Pure, but for reading the three files.

``orders.jsonl`` holds the orders that are there at the beginning, ``entries.jsonl``
what happens then, step by step, and ``expected.json`` the state at rest. The
format is described in ``docs/fixtures.md``.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from stagedoor.core.codec import Fields
from stagedoor.core.outcome import Reason
from stagedoor.errors import ConfigurationError, InvalidOrder
from stagedoor.order import NewOrder, Seat
from stagedoor.orders import Change, RefundPosition, Rename, Reseat, RotateToken, parse_line

ENTRIES = "entries.jsonl"
EXPECTED = "expected.json"
ORDERS = "orders.jsonl"

MOST_CRASHES = 100
LONGEST_VALUE = 1_000_000
"""How often a text may be repeated: a value is no longer than that, if the text is one letter."""
_REASONS = tuple(reason.value for reason in Reason)


class FixtureError(ConfigurationError):
    """A fixture cannot be read; names file and line, what was found and what is allowed."""


# -- steps --------------------------------------------------------------------


@attrs.frozen
class Refund:
    """The shop refunds a whole order."""

    order_id: int


@attrs.frozen
class ChangeOrder:
    """The shop changes an order."""

    order_id: int
    changes: tuple[Change, ...]


@attrs.frozen
class Reissue:
    """The shop has the tickets of an order made again."""

    order_id: int


@attrs.frozen
class Trim:
    """Somebody deletes the entry that is being worked on from the stream."""


@attrs.frozen
class Crash:
    """The worker dies as from SIGKILL, the first *times* times that this point is reached."""

    times: int = 1


@attrs.frozen
class Rest:
    """Wait until nothing is left to do; what stands below stays below it in every order."""


@attrs.frozen
class Meanwhile:
    """Another entry comes, and is worked on to its end, before this one goes on."""

    fields: Fields


BookStep = Refund | ChangeOrder | Reissue
HookStep = BookStep | Trim | Crash | Meanwhile


@attrs.frozen(kw_only=True)
class AddEntry:
    """Add one entry to the stream; the hooks say what happens while it is worked on.

    *at_start*: before its handler runs. *at_render*: when the first document is
    drawn and not committed. *at_end*: when the handler has returned and nothing is settled.
    """

    fields: Fields
    at_start: tuple[HookStep, ...] = ()
    at_render: tuple[HookStep, ...] = ()
    at_end: tuple[HookStep, ...] = ()

    @property
    def hooks(self) -> tuple[HookStep, ...]:
        """All that happens while it is worked on."""
        return self.at_start + self.at_render + self.at_end

    @property
    def order_id(self) -> int | None:
        """The order that it names, None when it names none that could be one."""
        text = next((value for name, value in self.fields if name == b"order_id"), b"")
        return int(text) if text.isdigit() and len(text) <= 19 else None  # noqa: PLR2004 - digits of 2^63-1


@attrs.frozen
class Step:
    """What stands in one line of ``entries.jsonl``."""

    line: int
    what: AddEntry | BookStep | Rest

    @property
    def changed(self) -> frozenset[int]:
        """The orders that it changes, itself or while its entry is worked on."""
        steps = self.what.hooks if isinstance(self.what, AddEntry) else (self.what,)
        return frozenset(step.order_id for step in steps if isinstance(step, BookStep))

    @property
    def concerned(self) -> frozenset[int]:
        """The orders that it is about in any way."""
        named = self.what.order_id if isinstance(self.what, AddEntry) else None
        return self.changed if named is None else self.changed | {named}


# -- what is expected -----------------------------------------------------------


@attrs.frozen(kw_only=True)
class ExpectedOrder:
    """How an order must end; *void* counts its void tickets and holds in the given order of steps only."""

    status: str
    valid: tuple[int, ...]
    void: int | None = None


@attrs.frozen(kw_only=True, order=True)
class ExpectedLetter:
    """A dead letter: the line of its entry, its reason, and a part of its error."""

    line: int
    reason: str
    error: str = ""


@attrs.frozen(kw_only=True)
class Expected:
    """The state at rest; *delayed* names the lines whose entries still wait for a worker that knows their kind."""

    about: str
    orders: Mapping[int, ExpectedOrder]
    dead: tuple[ExpectedLetter, ...] = ()
    delayed: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class Fixture:
    """One case."""

    folder: Path
    orders: tuple[NewOrder, ...]
    steps: tuple[Step, ...]
    expected: Expected

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name


# -- finding and reading ----------------------------------------------------------


def find_fixtures(paths: Sequence[Path]) -> list[Path]:
    """Return the fixture folders among and directly in these paths, each once, in the order given.

    Raises:
        FixtureError: a path is no fixture and holds none.
    """
    found: dict[Path, None] = {}
    problems = []
    for path in paths:
        inside = [path] if is_fixture(path) else sorted(child for child in _children(path) if is_fixture(child))
        if not inside:
            problems.append(f"{path}: expected a folder with {ENTRIES} and {EXPECTED}, or a folder of such folders")
        found.update(dict.fromkeys(inside))
    if problems:
        raise FixtureError(problems)
    return list(found)


def is_fixture(path: Path) -> bool:
    """Return whether this folder is a fixture."""
    return (path / ENTRIES).is_file() and (path / EXPECTED).is_file()


def _children(path: Path) -> list[Path]:
    return list(path.iterdir()) if path.is_dir() else []


def load_fixture(folder: Path) -> Fixture:
    """Read the three files of a fixture.

    Raises:
        FixtureError: names file and line.
    """
    steps = tuple(_read_lines(folder / ENTRIES, _step))
    orders = tuple(order for _line, order in _read_lines(folder / ORDERS, _order))
    expected = _located(folder / EXPECTED, None, lambda: _expected(_json(_read(folder / EXPECTED))))
    _located(folder / EXPECTED, None, lambda: _check_expected(expected, orders, steps))
    return Fixture(
        folder=folder, orders=orders, steps=tuple(Step(line, what) for line, what in steps), expected=expected
    )


def _read(path: Path) -> str:
    try:
        # Not as text: Python would take every line end for one of its own, also within a line.
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FixtureError(f"{path}: cannot be read: {error}") from None


def _read_lines[T](path: Path, parse: Callable[[str], T]) -> Iterator[tuple[int, T]]:
    """Yield what stands in each line, with its number; blank lines and those that begin with ``#`` say nothing."""
    # A line ends with a newline and nothing else: U+2028 and its like may stand in any text of JSON.
    for number, line in enumerate(_read(path).split("\n"), start=1):
        if line.strip(" \t\r") and not line.lstrip().startswith("#"):
            yield number, _located(path, number, lambda line=line: parse(line))  # type: ignore[misc] # mypy cannot type a default in a lambda


def _located[T](path: Path, line: int | None, parse: Callable[[], T]) -> T:
    try:
        return parse()
    except (ValueError, InvalidOrder) as error:
        where = path if line is None else f"{path}:{line}"
        raise FixtureError(f"{where}: {error}") from None


def _order(line: str) -> NewOrder:
    order = parse_line(line)
    if order.order_id is None:
        raise ValueError("order_id: an order of a fixture needs one, for entries name it")
    return order


# -- one line of entries.jsonl ------------------------------------------------------


def _step(line: str) -> AddEntry | BookStep | Rest:
    data = _json(line)
    if "entry" in data:
        _only(data, "entry", "at_start", "at_render", "at_end")
        hooks = {name: _hook(data[name]) for name in ("at_start", "at_render", "at_end") if name in data}
        return AddEntry(fields=_fields(data["entry"]), **hooks)
    if "rest" in data:
        _only(data, "rest")
        return Rest()
    return _book_step(data)


def _hook(data: Any) -> tuple[HookStep, ...]:
    if not isinstance(data, list) or not data:
        raise ValueError(f"a hook is a list of steps, found {_shown(data)}")
    return tuple(_hook_step(_object(step, "a step of a hook")) for step in data)


def _hook_step(data: dict[str, Any]) -> HookStep:
    if "trim" in data:
        _only(data, "trim")
        if data["trim"] != "this":
            raise ValueError(f'trim: expected "this", the entry that is worked on, found {_shown(data["trim"])}')
        return Trim()
    if "crash" in data:
        _only(data, "crash")
        return Crash(_number(data["crash"], "crash", most=MOST_CRASHES))
    if "entry" in data:
        _only(data, "entry")
        return Meanwhile(_fields(data["entry"]))
    return _book_step(data)


def _book_step(data: dict[str, Any]) -> BookStep:
    for name, step in (("refund", Refund), ("reissue", Reissue)):
        if name in data:
            _only(data, name)
            return step(_number(data[name], name))
    if "change" in data:
        _only(data, "change", "rename", "reseat", "rotate", "refund_positions")
        return ChangeOrder(_number(data["change"], "change"), tuple(_changes(data)))
    raise ValueError(
        f"expected one of entry, refund, change, reissue, rest (and trim, crash in a hook), found {_shown(list(data))}"
    )


def _changes(data: dict[str, Any]) -> Iterator[Change]:
    if len(data) == 1:
        raise ValueError("change: say what changes: rename, reseat, rotate or refund_positions")
    for position, holder in _object(data.get("rename", {}), "rename").items():
        yield Rename(_position(position), str(holder))
    for position, seat in _object(data.get("reseat", {}), "reseat").items():
        yield Reseat(_position(position), None if seat is None else _seat(_object(seat, "reseat")))
    yield from (RotateToken(_number(position, "rotate")) for position in _list(data.get("rotate", []), "rotate"))
    for position in _list(data.get("refund_positions", []), "refund_positions"):
        yield RefundPosition(_number(position, "refund_positions"))


def _seat(data: dict[str, Any]) -> Seat:
    _only(data, "zone", "row", "number")
    return Seat(**{name: None if value is None else str(value) for name, value in data.items()})


def _position(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"expected the id of a position, found {_shown(text)}")
    return int(text)


# -- raw fields -----------------------------------------------------------------------


def _fields(data: Any) -> Fields:
    """Return an entry's fields: an object, or a list of pairs where a name is there twice."""
    pairs = list(data.items()) if isinstance(data, dict) else data
    if not isinstance(pairs, list) or not pairs or not all(_is_pair(pair) for pair in pairs):
        raise ValueError(f"entry: expected an object or a list of [name, value], found {_shown(data)}")
    return tuple((_bytes(name), _bytes(value)) for name, value in pairs)


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, (list, tuple)) and len(pair) == 2  # noqa: PLR2004 - a name and a value


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return base64.b64decode(str(value["base64"]), validate=True)
        except binascii.Error as error:
            raise ValueError(f"base64: {error}") from None
    if isinstance(value, dict) and value.keys() == {"repeat", "times"}:
        return str(value["repeat"]).encode() * _number(value["times"], "times", most=LONGEST_VALUE)
    raise ValueError(
        f'a name or value is a text, {{"base64": …}} or {{"repeat": text, "times": count}}, found {_shown(value)}'
    )


# -- expected.json ----------------------------------------------------------------------


def _expected(data: dict[str, Any]) -> Expected:
    _only(data, "about", "orders", "dead", "delayed")
    orders = {
        _position(order_id): _expected_order(_object(order, f"orders.{order_id}"))
        for order_id, order in _object(data.get("orders", {}), "orders").items()
    }
    letters = [_letter(_object(letter, "dead")) for letter in _list(data.get("dead", []), "dead")]
    delayed = [_number(line, "delayed") for line in _list(data.get("delayed", []), "delayed")]
    return Expected(
        about=str(data.get("about", "")), orders=orders, dead=tuple(sorted(letters)), delayed=tuple(sorted(delayed))
    )


def _expected_order(data: dict[str, Any]) -> ExpectedOrder:
    _only(data, "status", "valid", "void")
    status = data.get("status")
    if status not in {"placed", "refunded"}:
        raise ValueError(f"status: expected placed or refunded, found {_shown(status)}")
    valid = tuple(sorted(_number(position, "valid") for position in _list(data.get("valid"), "valid")))
    return ExpectedOrder(
        status=status, valid=valid, void=None if "void" not in data else _number(data["void"], "void", least=0)
    )


def _letter(data: dict[str, Any]) -> ExpectedLetter:
    _only(data, "line", "reason", "error")
    if data.get("reason") not in _REASONS:
        raise ValueError(f"reason: expected one of {', '.join(_REASONS)}, found {_shown(data.get('reason'))}")
    return ExpectedLetter(
        line=_number(data.get("line"), "line"), reason=data["reason"], error=str(data.get("error", ""))
    )


def _check_expected(
    expected: Expected, orders: Sequence[NewOrder], steps: Sequence[tuple[int, AddEntry | BookStep | Rest]]
) -> None:
    placed = {order.order_id for order in orders}
    if placed != set(expected.orders):
        missing, unknown = sorted(map(str, placed - set(expected.orders))), sorted(set(expected.orders) - placed)
        raise ValueError(f"orders: expected one for each placed order; missing: {missing}, not placed: {unknown}")
    lines = {line for line, what in steps if isinstance(what, AddEntry)}
    for line in (*(letter.line for letter in expected.dead), *expected.delayed):
        if line not in lines:
            raise ValueError(f"there is no entry in line {line} of {ENTRIES}")


# -- small checks -------------------------------------------------------------------------


def _json(text: str) -> dict[str, Any]:
    try:
        return _object(json.loads(text), "it")
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON at column {error.colno}: {error.msg}") from None


def _object(data: Any, what: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ValueError(f"{what}: expected an object, found {_shown(data)}")  # noqa: TRY004 - one class for all that is wrong with a file
    return data


def _list(data: Any, what: str) -> list[Any]:
    if not isinstance(data, list):
        raise ValueError(f"{what}: expected a list, found {_shown(data)}")  # noqa: TRY004 - as above
    return data


def _number(data: Any, what: str, *, least: int = 1, most: int = 2**63 - 1) -> int:
    if not isinstance(data, int) or isinstance(data, bool) or not least <= data <= most:
        raise ValueError(f"{what}: expected a whole number from {least} to {most}, found {_shown(data)}")
    return data


def _only(data: dict[str, Any], *known: str) -> None:
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise ValueError(f"unknown: {', '.join(map(_shown, unknown))}; known here: {', '.join(known)}")


def _shown(data: Any) -> str:
    text = ascii(data)
    return text if len(text) <= 60 else f"{text[:60]}…"  # noqa: PLR2004 - fits a line with its file's name
