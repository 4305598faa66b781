"""Parsing is a boundary: what makes no job is a dead letter at its first delivery, and disturbs nobody."""

from typing import Any

import pytest

from stagedoor.core.codec import Fields, pair_up, unpack
from stagedoor.core.job import parse_job
from stagedoor.events import DeliverySettled, DeliveryStarted
from stagedoor.testing import FakeBroker
from tests.worker.support import job_fields, living, spec

Pairs = tuple[tuple[bytes, bytes], ...]


def sound(**changes: str) -> Pairs:
    return tuple((name.encode(), value.encode()) for name, value in {**job_fields(order_id=77), **changes}.items())


def without(name: bytes) -> Pairs:
    return tuple(pair for pair in sound() if pair[0] != name)


MALFORMED: dict[str, Pairs] = {
    "no fields": ((b"x", b"y"),),
    **{f"no {name}": without(name.encode()) for name in job_fields()},
    "a value that is not UTF-8": (*without(b"trace"), (b"trace", b"\xff\xfe\x00\x80")),
    "a name that is not UTF-8": (*sound(), (b"\xff", b"")),
    "a kind that is not UTF-8": (*without(b"kind"), (b"kind", b"\xc3\x28")),
    "a kind with a space": sound(kind="render tickets"),
    "an empty kind": sound(kind=""),
    "a kind of 65 letters": sound(kind="k" * 65),
    "an id of 5,000 digits": sound(order_id="9" * 5000),
    "an id past 63 bits": sound(order_id=str(2**63)),
    "a negative id": sound(order_id="-1"),
    "a hexadecimal id": sound(order_id="0x10"),
    "an id with spaces": sound(order_id=" 7 "),
    "an id with an exponent": sound(order_id="1e3"),
    "an id with other digits": sound(order_id="٣"),
    "an empty id": sound(order_id=""),
    "a leading zero": sound(order_id="007"),
    "zero": sound(order_id="0"),
    "an id with a newline": sound(order_id="7\n"),
    "a bad outbox id": sound(outbox_id="1.0"),
    "NUL": sound(trace="a\0b"),
    "a newline in a label": sound(request_id="a\nb"),
    "a label of 129 characters": sound(trace="t" * 129),
    "a field twice": (*sound(), (b"order_id", b"78")),
    "an attempt of zero": sound(attempt="0"),
    "an attempt past all numbers": sound(attempt="9" * 5000),
    "an attempt that is none": sound(attempt="NaN"),
    "an attempt of infinity": sound(attempt="1e309"),
    "bad crashes": sound(crashes="-1"),
    "bad hops": sound(hops="x"),
    "a bad origin": sound(origin="yesterday"),
    "65 fields": (*sound(), *((b"f%d" % number, b"") for number in range(60))),
    "65 KiB": (*sound(), (b"big", b"x" * 65 * 1024)),
}


def nothing(job: Any, held: Any) -> None:
    """Be done."""


def letter_of(fields: Fields) -> dict[bytes, bytes]:
    return dict(fields)


@pytest.mark.parametrize("bad", MALFORMED.values(), ids=list(MALFORMED))
async def test_a_malformed_entry_among_nine_good_ones_is_dead_at_its_first_delivery_with_its_fields_kept(
    broker: FakeBroker, bad: Pairs
) -> None:
    good = [broker.add(job_fields(order_id=number)) for number in range(1, 6)]
    bad_id = broker.add(bad)
    good += [broker.add(job_fields(order_id=number)) for number in range(6, 10)]

    async with living(broker, spec(nothing)) as life:
        await life.recorder.wait(DeliverySettled, 10)

        settled = {event.entry_id: event for event in life.recorder.of(DeliverySettled)}
        assert {entry_id: settled[entry_id].outcome for entry_id in good} == dict.fromkeys(good, "done")
        assert (settled[bad_id].outcome, settled[bad_id].reason, settled[bad_id].deliveries) == ("dead", "malformed", 1)
        assert bad_id not in {event.entry_id for event in life.recorder.of(DeliveryStarted)}

    (letter,) = map(letter_of, broker.dead)
    assert (letter[b"reason"], letter[b"entry_id"], letter[b"deliveries"]) == (b"malformed", bad_id.encode(), b"1")
    assert all(not stream.entries and not stream.require_group().pending for stream in broker.streams.values())
    kept = letter[b"fields"]
    if int(letter[b"fields_bytes"]) == len(kept):
        assert pair_up(unpack(kept)) == bad
    else:
        assert len(kept) == 64 * 1024
    assert all(chr(byte).isprintable() or byte >= 0x80 for byte in letter[b"error"])


async def test_all_of_them_at_once_and_good_ones_between(broker: FakeBroker) -> None:
    for bad in MALFORMED.values():
        broker.add(bad)
        broker.add(job_fields())
    async with living(broker, spec(nothing)) as life:
        await life.recorder.wait(DeliverySettled, 2 * len(MALFORMED))
        assert len(life.recorder.of(DeliverySettled, outcome="done")) == len(MALFORMED)
        assert len(life.recorder.of(DeliverySettled, reason="malformed")) == len(MALFORMED)


async def test_a_parser_that_fails_in_another_way_is_that_entrys_end_too(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(entry: Any) -> Any:
        if entry.value(b"order_id") == b"2":
            raise RecursionError("deeper than anybody thought")
        return parse_job(entry)

    monkeypatch.setattr("stagedoor.worker.attempt.parse_job", fail)
    for number in (1, 2, 3):
        broker.add(job_fields(order_id=number))
    async with living(broker, spec(nothing)) as life:
        await life.recorder.wait(DeliverySettled, 3)
        assert len(life.recorder.of(DeliverySettled, outcome="done")) == 2
        assert "RecursionError" in str(life.recorder.of(DeliverySettled, reason="malformed")[0].error)


async def test_unknown_extra_fields_are_no_fault(broker: FakeBroker) -> None:
    broker.add((*sound(), (b"colour", b"blue"), (b"size", b"")))
    async with living(broker, spec(nothing)) as life:
        assert (await life.recorder.wait(DeliverySettled)).outcome == "done"
