"""Parsing is a boundary: a typed job, or a refusal that says which field, in one printable line."""

from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stagedoor.core.codec import Fields
from stagedoor.core.entry import MAX_BYTES, MAX_FIELDS, Entry, queued_ms, with_fields
from stagedoor.core.job import MAX_ID, Job, parse_job
from stagedoor.core.tenure import Stream
from stagedoor.errors import MalformedEntry

ENTRY_ID = "1758200000123-4"
SOUND = {"kind": "render_tickets", "order_id": "4471", "outbox_id": "9", "request_id": "req-1", "trace": ""}


def entry_of(fields: Fields, entry_id: str = ENTRY_ID) -> Entry:
    return Entry(Stream.JOBS, entry_id, fields)


def raw(fields: dict[str, str]) -> Fields:
    return tuple((name.encode(), value.encode()) for name, value in fields.items())


def parse(**changes: str | None) -> Job:
    """Parse a sound entry with some fields changed, added, or (None) left out."""
    fields = {name: value for name, value in {**SOUND, **changes}.items() if value is not None}
    return parse_job(entry_of(raw(fields)))


def refusal(fields: Fields) -> MalformedEntry:
    with pytest.raises(MalformedEntry) as caught:
        parse_job(entry_of(fields))
    _expect_one_printable_line(caught.value)
    return caught.value


def _expect_one_printable_line(error: MalformedEntry) -> None:
    text = str(error)
    assert text.isprintable()
    assert 0 < len(text) < 400
    assert text == f"{error.field}: {error.problem}"


def refused_field(**changes: str | None) -> str:
    fields = {name: value for name, value in {**SOUND, **changes}.items() if value is not None}
    return refusal(raw(fields)).field


# -- what makes a job ------------------------------------------------------------------


def test_sound_fields_make_a_job() -> None:
    assert parse() == Job(
        kind="render_tickets",
        order_id=4471,
        outbox_id=9,
        request_id="req-1",
        trace="",
        attempt=1,
        entry_id=ENTRY_ID,
        origin=ENTRY_ID,
        queued_at=1758200000.123,
        hops=0,
        crashes=0,
        call_id=None,
    )


def test_what_workers_have_added_is_read() -> None:
    job = parse(attempt="3", origin="1758100000000-0", hops="2", crashes="1")
    assert (job.attempt, job.origin, job.hops, job.crashes) == (3, "1758100000000-0", 2, 1)
    assert (job.entry_id, job.queued_at) == (ENTRY_ID, 1758100000.0)


def test_the_order_of_the_fields_does_not_matter() -> None:
    assert parse_job(entry_of(tuple(reversed(raw(SOUND))))) == parse()


def test_fields_that_nobody_knows_are_ignored() -> None:
    assert parse(note="x" * 1000, colour="\u2028", **{"": "", "__class__": "x", "Kind": "y"}) == parse()


def test_a_flows_entry_needs_no_row_ids() -> None:
    job = parse_job(entry_of(raw({"kind": "close-order", "call_id": "outbox-9"})))
    assert (job.call_id, job.order_id, job.outbox_id, job.request_id, job.trace) == ("outbox-9", None, None, "", "")


def test_a_flows_row_ids_are_checked_where_they_are_given() -> None:
    assert refusal(raw({"kind": "close-order", "call_id": "c", "order_id": "0"})).field == "order_id"


@pytest.mark.parametrize("kind", ["a", "render_tickets", "A.b-c_9", "-", "k" * 64])
def test_kinds_that_are_allowed(kind: str) -> None:
    assert parse(kind=kind).kind == kind


@pytest.mark.parametrize("name", ["order_id", "outbox_id"])
@pytest.mark.parametrize("text", ["1", "10", str(2**53 + 1), str(MAX_ID)])
def test_ids_that_are_allowed(name: str, text: str) -> None:
    assert getattr(parse(**{name: text}), name) == int(text)


@pytest.mark.parametrize("name", ["request_id", "trace"])
@pytest.mark.parametrize("text", ["", "x", "x" * 128, "ü 券 🎟", " a b "])
def test_labels_that_are_allowed(name: str, text: str) -> None:
    assert getattr(parse(**{name: text}), name) == text


def test_64_fields_and_64_kib_are_allowed() -> None:
    parse(**{f"f{number}": "" for number in range(MAX_FIELDS - len(SOUND))})
    room = MAX_BYTES - entry_of(raw(SOUND)).size
    parse_job(entry_of((*raw(SOUND), (b"n", b"x" * (room - 1)))))


def test_what_workers_add_does_not_count() -> None:
    """Or an entry of the most fields could never be retried."""
    added = {"attempt": "2", "origin": "1-0", "hops": "1", "crashes": "1"}
    parse(**added, **{f"f{number}": "" for number in range(MAX_FIELDS - len(SOUND))})
    room = MAX_BYTES - entry_of(raw(SOUND)).size
    parse_job(entry_of((*raw(SOUND), (b"n", b"x" * (room - 1)), *raw(added))))


# -- what makes none ---------------------------------------------------------------------


@pytest.mark.parametrize("name", SOUND)
def test_a_missing_field_is_named(name: str) -> None:
    error = refusal(raw({key: value for key, value in SOUND.items() if key != name}))
    assert (error.field, error.problem) == (name, "the field is missing")


def test_no_fields_at_all_are_refused() -> None:
    assert refusal(()).field == "kind"


BAD_NUMBERS = [
    "", "0", "-1", "+1", "01", "007", "0x10", "0b1", " 7 ", "7 ", "\t7", "7\n", "1e3", "1.0", "1_000", "1,000",
    "٣", "７", "²", "Ⅷ", "seven", "None", "null", "nan", "inf", "\x00", "7\x00", "9" * 5000, "9" * 20, "[]", "{}",
]  # fmt: skip


@pytest.mark.parametrize("name", ["order_id", "outbox_id"])
@pytest.mark.parametrize("text", [*BAD_NUMBERS, str(MAX_ID + 1), "9" * 19])
def test_ids_that_are_refused(name: str, text: str) -> None:
    assert refused_field(**{name: text}) == name


@pytest.mark.parametrize("text", [*BAD_NUMBERS, "1000000000"])
def test_attempts_that_are_refused(text: str) -> None:
    assert refused_field(attempt=text) == "attempt"


@pytest.mark.parametrize("name", ["hops", "crashes"])
@pytest.mark.parametrize("text", [text for text in BAD_NUMBERS if text != "0"])
def test_counts_that_are_refused(name: str, text: str) -> None:
    assert refused_field(**{name: text}) == name


@pytest.mark.parametrize("text", ["", "1", "1-", "-1", "a-b", "1-2-3", "1-0\n", " 1-0", "٣-0", "9" * 20 + "-0", "1--0"])
def test_origins_that_are_refused(text: str) -> None:
    assert refused_field(origin=text) == "origin"


@pytest.mark.parametrize("kind", ["", " ", "a b", "a/b", "ä", "k" * 65, "a\n", "\x00", "a:b", "{a}", "٣"])
def test_kinds_that_are_refused(kind: str) -> None:
    assert refused_field(kind=kind) == "kind"


@pytest.mark.parametrize("name", ["request_id", "trace"])
@pytest.mark.parametrize("text", ["x" * 129, "a\nb", "\x00", "\x1b[2J", "\u2028", "\u202e", "\x85", "\t"])
def test_labels_that_are_refused(name: str, text: str) -> None:
    assert refused_field(**{name: text}) == name


@pytest.mark.parametrize("call_id", ["", "c" * 65, "a b", "a/b", "ü"])
def test_call_ids_that_are_refused(call_id: str) -> None:
    assert refused_field(call_id=call_id) == "call_id"


@pytest.mark.parametrize("name", [*SOUND, "note", "attempt"])
def test_a_name_that_is_there_twice_is_refused_even_with_the_same_value(name: str) -> None:
    fields = raw({**SOUND, "note": "", "attempt": "1"})
    twice = next(pair for pair in fields if pair[0] == name.encode())
    error = refusal((*fields, twice))
    assert (error.field, error.problem) == (ascii(name), "the field is there twice")


@pytest.mark.parametrize("value", [b"\xff\xfe\x00\x80", b"\xc3\x28", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80"])
def test_bytes_that_are_not_utf_8_are_refused_in_values_and_names(value: bytes) -> None:
    assert "not UTF-8" in refusal((*raw(SOUND), (b"note", value))).problem
    assert "not UTF-8" in refusal((*raw(SOUND), (value, b"x"))).problem
    assert "not UTF-8" in refusal(((b"kind", value), *raw(SOUND)[1:])).problem


def test_65_fields_are_refused() -> None:
    extra = tuple((b"f%d" % number, b"") for number in range(MAX_FIELDS - len(SOUND) + 1))
    assert "64 fields" in refusal((*raw(SOUND), *extra)).problem


def test_65_kib_are_refused() -> None:
    assert "65536 bytes" in refusal((*raw(SOUND), (b"note", b"x" * 65 * 1024))).problem
    assert "65536 bytes" in refusal((*raw(SOUND), (b"n" * 65 * 1024, b""))).problem


def test_one_byte_more_than_allowed_is_refused() -> None:
    room = MAX_BYTES - entry_of(raw(SOUND)).size
    refusal((*raw(SOUND), (b"n", b"x" * room)))


def test_our_own_names_are_no_way_around_the_limits() -> None:
    refusal((*raw(SOUND), (b"attempt", b"1" * 100_000)))
    refusal((*raw(SOUND), *((b"attempt", b"1") for _ in range(100))))


def test_a_long_value_is_shown_cut_with_its_length() -> None:
    error = refusal(raw({**SOUND, "order_id": "9" * 5000}))
    assert str(error).endswith(f"got '{'9' * 40}'… (5000 characters)")


def test_a_value_cannot_forge_a_line_of_the_log() -> None:
    error = refusal(raw({**SOUND, "kind": "ok\n2026-01-01 INFO done \x1b[2J\u2028"}))
    assert "ok\\n2026-01-01 INFO done \\x1b[2J\\u2028" in str(error)


def test_a_long_odd_name_is_shown_cut() -> None:
    refusal((*raw(SOUND), (b"\xff" * 10_000, b"")))
    refusal((*raw(SOUND), *(((b"\n" * 10_000), b""),) * 2))


ANY_BYTES = st.binary(max_size=40) | st.sampled_from(
    [name.encode() for name in (*SOUND, "attempt", "origin", "call_id")]
)


@given(st.lists(st.tuples(ANY_BYTES, st.binary(max_size=200)), max_size=70))
@example([(b"kind", b"x")] * 2)
def test_any_fields_make_a_job_or_a_refusal_in_one_printable_line(fields: list[tuple[bytes, bytes]]) -> None:
    _parse_or_refuse(fields)


@given(
    st.dictionaries(st.sampled_from([*SOUND, "attempt", "origin", "hops", "crashes", "call_id"]), st.text(max_size=50))
)
def test_any_text_in_known_fields_makes_a_job_or_a_refusal(changes: dict[str, str]) -> None:
    fields = {**SOUND, **changes}
    _parse_or_refuse([(name.encode(), value.encode("utf-8", "surrogatepass")) for name, value in fields.items()])


@given(st.integers(min_value=1, max_value=MAX_ID), st.integers(1, 999_999_999), st.integers(0, 999_999_999))
def test_every_number_in_range_is_read_as_itself(row_id: int, attempt: int, count: int) -> None:
    job = parse(order_id=str(row_id), attempt=str(attempt), hops=str(count), crashes=str(count))
    assert (job.order_id, job.attempt, job.hops, job.crashes) == (row_id, attempt, count, count)


def _parse_or_refuse(fields: Iterable[tuple[bytes, bytes]]) -> None:
    try:
        job = parse_job(entry_of(tuple(fields)))
    except MalformedEntry as error:
        _expect_one_printable_line(error)
    else:
        assert job.kind.isascii()
        assert job.attempt >= 1
        assert job.call_id is not None or (job.order_id is not None and 1 <= job.order_id <= MAX_ID)


# -- entries -------------------------------------------------------------------------------


def test_the_time_of_queueing_is_in_the_id() -> None:
    assert queued_ms("1758200000123-4") == 1758200000123


def test_setting_fields_anew_keeps_the_place_and_the_bytes_of_all_others() -> None:
    fields = ((b"a", b"1"), (b"\xff", b"\x00"), (b"b", b"2"))
    assert with_fields(fields, {"b": "3", "new": "4", "a": "5"}) == (
        (b"a", b"5"),
        (b"\xff", b"\x00"),
        (b"b", b"3"),
        (b"new", b"4"),
    )
    assert with_fields(fields, {}) == fields


def test_the_value_of_a_name_is_its_first() -> None:
    entry = entry_of(((b"a", b"1"), (b"a", b"2")))
    assert (entry.value(b"a"), entry.value(b"b")) == (b"1", None)
