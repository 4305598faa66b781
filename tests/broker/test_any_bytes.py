"""Entries of any bytes: reading gives them as they are, parsing refuses them, a dead letter keeps them."""

import pytest

from stagedoor.broker.deliveries import Renewal
from stagedoor.core.codec import Fields, pack_fields, unpack_fields
from stagedoor.core.entry import MAX_BYTES
from stagedoor.core.job import parse_job
from stagedoor.core.outcome import Dead, Reason, of_malformed
from stagedoor.core.tenure import Stream
from stagedoor.errors import MalformedEntry
from tests.broker.harness import Harness, accepted, job, settled

TWICE: Fields = (*job(), (b"kind", b"refund"), (b"order_id", b"2"), (b"order_id", b"3"))

BAD: dict[str, Fields] = {
    "a value that is not UTF-8": (*job(), (b"note", b"\xff\xfe\x00\x80")),
    "a name that is not UTF-8": (*job(), (b"\xff", b"x")),
    "a kind that is not UTF-8": ((b"kind", b"\xc3\x28"), *job()[1:]),
    "NUL everywhere": ((b"\x00", b"\x00"), (b"", b"")),
    "an empty name and value": ((b"", b""),),
    "names twice": TWICE,
    "an id of 5,000 digits": ((b"kind", b"print"), (b"order_id", b"9" * 5000), *job()[2:]),
    "65 fields": (*job(), *((b"f%d" % n, b"") for n in range(60))),
    "100,000 fields": tuple((b"f%d" % n, b"v") for n in range(100_000)),
    "64 KiB and one byte": (*job(), (b"n", b"x" * MAX_BYTES)),
    "8 MB in one value": (*job(), (b"blob", b"\xf0" * 8_000_000)),
}


@pytest.mark.parametrize(
    "verb, what",
    [
        *(("read", what) for what in BAD),
        *(("wait", what) for what in BAD if what != "100,000 fields"),
        *(("pool", what) for what in ("names twice", "a name that is not UTF-8", "65 fields")),
    ],
)
def test_every_byte_comes_through_every_way_of_reading(broker: Harness, verb: str, what: str) -> None:
    worker = broker.worker("w")
    broker.add(BAD[what])
    if verb == "pool":
        worker.release(worker.read(1).claimed)

    (claimed,) = (worker.wait(5000) if verb == "wait" else worker.read(1)).claimed

    assert claimed.entry.fields == BAD[what]


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_parsed_is_moved_aside_and_its_neighbours_run(broker: Harness, what: str) -> None:
    worker = broker.worker("w")
    broker.add(job(outbox_id="1"))
    bad_id = broker.add(BAD[what])
    broker.add(job(outbox_id="2"))
    before, bad, after = worker.read(3).claimed
    with pytest.raises(MalformedEntry) as refused:
        parse_job(bad.entry)

    answers = worker.settle(1, [settled(before), settled(bad, of_malformed(refused.value)), settled(after)])

    assert answers.answers == accepted(3)
    (letter,) = broker.state().dead
    packed = pack_fields(BAD[what])
    assert letter["reason"] == b"malformed"
    assert letter["error"] == str(refused.value).encode()
    assert letter["entry_id"] == bad_id.encode()
    assert letter["fields_bytes"] == b"%d" % len(packed)
    assert letter["fields"] == packed[: 64 * 1024]
    if len(packed) <= MAX_BYTES:
        assert unpack_fields(letter["fields"]) == BAD[what]
    assert broker.length() == 0


def test_duplicate_names_keep_their_order(broker: Harness) -> None:
    worker = broker.worker("w")
    broker.add(TWICE)
    (claimed,) = worker.read(1).claimed
    assert claimed.entry.fields == TWICE
    assert claimed.entry.value(b"kind") == b"print"


def test_an_entry_that_is_too_large_to_add_anew_can_be_renewed_and_released_while_its_body_lives(
    broker: Harness,
) -> None:
    worker = broker.worker("w")
    broker.add(BAD["64 KiB and one byte"])
    (claimed,) = worker.read(1).claimed
    assert worker.renew([claimed.tenure]) == (Renewal.RENEWED,)
    assert worker.release([claimed]) == 1
    (again,) = worker.read(1).claimed
    assert again.entry.fields == claimed.entry.fields


@pytest.mark.parametrize("what", ["65 fields", "64 KiB and one byte"])
def test_an_entry_that_is_too_large_to_add_anew_stays_pending_when_its_body_is_gone(broker: Harness, what: str) -> None:
    worker = broker.worker("w")
    entry_id = broker.add(BAD[what])
    (claimed,) = worker.read(1).claimed
    broker.trim(entry_id)
    assert worker.release([claimed]) == 0
    assert broker.state().jobs.pending == {entry_id: ("w", 1)}
    dead = Dead(Reason.MALFORMED, "too large")
    assert worker.settle(1, [settled(claimed, dead, body_gone=True)]).answers == accepted(1)


UNPARSED: dict[str, Fields] = {
    "our own names 5,000 times": tuple((b"attempt", b"%d" % n) for n in range(5000)),
    "our own name with a megabyte": ((b"attempt", b"9" * 1_000_000), *job()),
    "our own names with rubbish": ((b"\xff", b"\xff"), (b"origin", b"\xff"), (b"crashes", b"many")),
    "digits that are not ASCII": ((b"crashes", b"\xd9\xa3"), *job()),
}


@pytest.mark.parametrize("what", UNPARSED)
@pytest.mark.parametrize("body", ["there", "gone"])
def test_entries_that_were_never_parsed_can_be_released(broker: Harness, what: str, body: str) -> None:
    """Read-ahead is given back unparsed: whatever its fields say, no release may fail and no neighbour be lost."""
    crashed = broker.worker("crashed")
    odd, sound = broker.add(UNPARSED[what]), broker.add(job(outbox_id="77"))
    crashed.read(2)
    broker.lapse("crashed")
    worker = broker.worker("w")
    worker.sweep()
    claimed = worker.read(2).claimed
    assert all(len(one.crash_log) == 1 for one in claimed)
    if body == "gone":
        broker.trim(odd, sound)

    released = worker.release(claimed)

    is_too_large = claimed[0].entry.is_oversized
    assert released == (1 if body == "gone" and is_too_large else 2)
    again = worker.read(8).claimed
    assert len(again) == released
    assert [one for one in again if (b"outbox_id", b"77") in one.entry.fields]


@pytest.mark.parametrize("stream", Stream)
def test_names_that_mean_something_to_a_script_are_only_names(broker: Harness, stream: Stream) -> None:
    fields: Fields = (*job(), (b"MAXLEN", b"~"), (b"*", b"0-0"), (b"JUSTID", b"'; return 1 --"), (b"%s", b"%(x)s"))
    worker = broker.worker("w")
    broker.add(fields, stream)
    (claimed,) = worker.read(1).claimed
    broker.trim(claimed.entry.entry_id, stream=stream)
    assert worker.release([claimed]) == 1
    (again,) = worker.read(1).claimed
    assert again.entry.fields[: len(fields)] == fields
