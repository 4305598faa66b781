"""The order of the paper: lines that mix directions, held against the other implementation of UAX #9."""

import pytest
from bidi import get_display
from bidi.mirror import MIRRORED
from hypothesis import given
from hypothesis import strategies as st

from stagedoor_renderers.kit.direction import visual

_PIECES = ["המלט", "ליל", "ألف", "ليلة", "Live", "VIP", "5", "2026", "12:30", "٣٤", "(", ")", "[", "]", "{", "}"]
_SIGNS = [" ", " ", ", ", ": ", " · ", "-", "/", "“", "”", "«", "»", "€", "%", "+", "."]

lines = st.lists(st.sampled_from(_PIECES + _SIGNS), min_size=1, max_size=14).map("".join)


def without_sides(line: str) -> str:
    """Return *line* with all brackets and quotes of a pair made one: the other implementation mirrors none."""
    return "".join(min(char, MIRRORED.get(char, char)) for char in line)


@given(line=lines, right_to_left=st.booleans())
def test_the_order_is_that_of_the_standard(line: str, right_to_left: bool) -> None:
    theirs = get_display(line, base_dir="R" if right_to_left else "L")
    assert without_sides(visual(line, right_to_left=right_to_left)) == without_sides(theirs)


@pytest.mark.parametrize(
    "line, right_to_left, shown",
    [
        ("Hamlet: המלט (2026)", False, "Hamlet: (2026) טלמה"),
        ("Oper [אופרה] 12", False, "Oper [הרפוא] 12"),
        ("המלט (Live) 2026", True, "2026 (Live) טלמה"),
        ("המלט (VIP) 5", True, "5 (VIP) טלמה"),
        ("המלט (אולם א)", True, "(א םלוא) טלמה"),
        ("abc (def) שלום", False, "abc (def) םולש"),
        ("שלום (abc", True, "abc) םולש"),
        ("((((שלום))))", True, "((((םולש))))"),
        ("שלום " + "(" * 70 + "a", True, "a" + ")" * 70 + " םולש"),
        ("abc", False, "abc"),
        ("", True, ""),
    ],
)
def test_brackets_stand_round_what_they_stood_round(line: str, right_to_left: bool, shown: str) -> None:
    assert visual(line, right_to_left=right_to_left) == shown
