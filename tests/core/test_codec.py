"""Packing keeps every byte; unpacking refuses what was not packed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagedoor.core.codec import pack, pack_fields, pair_up, unpack, unpack_fields
from stagedoor.errors import MalformedEntry


def unpacked(packed: bytes) -> list[bytes] | None:
    """Return the parts, None where the bytes are refused as they should be."""
    refused: list[MalformedEntry] = []
    try:
        return unpack(packed)
    except MalformedEntry as error:
        refused.append(error)
    assert refused[0].field == "body"
    assert str(refused[0]).isprintable()
    return None


def test_a_packed_list_can_be_read_by_a_person() -> None:
    assert pack([b"kind", b"render_tickets", b""]) == b"4:kind,14:render_tickets,0:,"


@given(st.lists(st.binary()))
def test_every_byte_survives(parts: list[bytes]) -> None:
    assert unpack(pack(parts)) == parts


@given(st.lists(st.tuples(st.binary(), st.binary())))
def test_fields_survive_with_order_and_repeats(fields: list[tuple[bytes, bytes]]) -> None:
    assert unpack_fields(pack_fields(tuple(fields))) == tuple(fields)


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5), st.data())
def test_a_list_that_was_cut_is_refused_or_is_one_of_its_beginnings(parts: list[bytes], data: st.DataObject) -> None:
    packed = pack(parts)
    cut = packed[: data.draw(st.integers(0, len(packed) - 1))]
    found = unpacked(cut)
    assert found is None or found == parts[: len(found)]


@given(st.binary(max_size=60) | st.text("0123456789:,-+ x", max_size=60).map(str.encode))
def test_any_bytes_are_unpacked_or_refused(packed: bytes) -> None:
    parts = unpacked(packed)
    assert parts is None or unpack(pack(parts)) == parts


@pytest.mark.parametrize(
    "packed",
    [b"4", b":", b"4:kin", b"4:kind", b"4:kind;", b"-1:,", b"+1:a,", b" 1:a,", b"0x1:a,", b"1e0:a,", b"\xb2:ab,",
     b"99999999999999999999:a,", b"1:a,-4:", b"1:a,,"],
)  # fmt: skip
def test_lengths_that_are_no_plain_digits_are_refused(packed: bytes) -> None:
    with pytest.raises(MalformedEntry, match=f"of {len(packed)}"):
        unpack(packed)


def test_a_name_without_a_value_gets_an_empty_one() -> None:
    assert pair_up([b"a", b"1", b"b"]) == ((b"a", b"1"), (b"b", b""))
    assert pair_up([]) == ()
