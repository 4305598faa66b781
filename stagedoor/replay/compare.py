"""What a replay has left, against what its fixture expects: pure."""

from collections.abc import Iterator, Mapping

import attrs

from stagedoor.replay.fixture import Expected, ExpectedLetter


@attrs.frozen(kw_only=True)
class FoundOrder:
    """How an order has ended; *valid* are the positions with one valid, current, readable ticket."""

    status: str
    valid: tuple[int, ...]
    void: int
    wrong: tuple[str, ...] = ()


@attrs.frozen(kw_only=True, order=True)
class FoundLetter:
    """A dead letter; *line* 0 is an entry that no line of the fixture has added."""

    line: int
    reason: str
    error: str = ""


@attrs.frozen(kw_only=True)
class Found:
    """The state at rest."""

    orders: Mapping[int, FoundOrder]
    dead: tuple[FoundLetter, ...]
    delayed: tuple[int, ...]
    waiting: int
    pending: int
    unknown_kinds: tuple[str, ...] = ()
    """Of the delayed ones, those kinds that the worker did not know."""


@attrs.frozen
class Difference:
    """One thing that is not as expected."""

    what: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.what}: expected {self.expected}, found {self.found}"


def differences(expected: Expected, found: Found, *, in_given_order: bool) -> list[Difference]:
    """Return everything that is not as expected.

    Args:
        expected: what the fixture says.
        found: what there is.
        in_given_order: whether the steps were taken as they stand. In another order tickets may
            never have been made, so void ones are not counted.
    """
    return [
        *_of_orders(expected, found, in_given_order=in_given_order),
        *_of_letters(expected.dead, found.dead),
        *_of_delayed(expected, found),
        *_of("entries in the streams", 0, found.waiting),
        *_of("entries pending", 0, found.pending),
    ]


def _of_orders(expected: Expected, found: Found, *, in_given_order: bool) -> Iterator[Difference]:
    for order_id, want in sorted(expected.orders.items()):
        have = found.orders[order_id]
        yield from _of(f"order {order_id}: status", want.status, have.status)
        yield from _of(f"order {order_id}: positions with a valid ticket", want.valid, have.valid)
        if in_given_order and want.void is not None:
            yield from _of(f"order {order_id}: void tickets", want.void, have.void)
        yield from _of(f"order {order_id}: what is wrong", (), have.wrong)


def _of_letters(want: tuple[ExpectedLetter, ...], have: tuple[FoundLetter, ...]) -> Iterator[Difference]:
    unmatched = list(have)
    for letter in want:
        match = next((found for found in unmatched if _is_it(letter, found)), None)
        if match is None:
            yield Difference("dead letter", _letter(letter), "none like it")
        else:
            unmatched.remove(match)
    for found in unmatched:
        yield Difference("dead letter", "none", _letter(found))


def _is_it(want: ExpectedLetter, have: FoundLetter) -> bool:
    return (want.line, want.reason) == (have.line, have.reason) and want.error in have.error


def _letter(letter: ExpectedLetter | FoundLetter) -> str:
    error = f" ({letter.error})" if letter.error else ""
    return f"{letter.reason} of line {letter.line}{error}"


def _of_delayed(expected: Expected, found: Found) -> Iterator[Difference]:
    hint = f" (of {', '.join(found.unknown_kinds)}: --plugins names the modules that know kinds of one's own)"
    for each in _of("entries that wait for a worker that knows their kind, by line", expected.delayed, found.delayed):
        yield attrs.evolve(each, found=each.found + hint) if found.unknown_kinds else each


def _of(what: str, want: object, have: object) -> Iterator[Difference]:
    if want != have:
        yield Difference(what, _shown(want), _shown(have))


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)
