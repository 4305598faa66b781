"""Setting text: nothing is lost, nothing is wider than its box, nothing takes for ever."""

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagedoor_renderers.kit.desk import Typesetter
from stagedoor_renderers.kit.direction import visual
from stagedoor_renderers.kit.faces import Faces
from stagedoor_renderers.kit.scripts import is_mark
from stagedoor_renderers.kit.showing import _over, show
from stagedoor_renderers.kit.text import cleaned, drawable
from stagedoor_renderers.kit.typeset import ELLIPSIS, break_lines, fit, rejoined, width_of
from stagedoor_renderers.stock import load_stock

# Loaded here and not by a fixture: hypothesis runs one test many times.
FACES = load_stock().faces
FACE = FACES.regular

LETTERS = "\nabcWil -/éŠ.山田、「」カ서 שלמאب"
TEXT = st.text(alphabet=LETTERS, max_size=200).map(lambda text: drawable(cleaned(text), FACES.common).text)
WIDTH = st.floats(min_value=5, max_value=400)


@given(TEXT, WIDTH)
def test_breaking_loses_nothing(text: str, width: float) -> None:
    expected = "\n".join(paragraph.rstrip(" ") for paragraph in text.split("\n"))
    assert rejoined(break_lines(FACE, text, 10, width=width)) == expected


@given(TEXT, WIDTH)
def test_no_line_is_wider_than_its_box_unless_it_is_one_character(text: str, width: float) -> None:
    for line in break_lines(FACE, text, 10, width=width):
        assert line.width <= width + 0.5 or len(line.text) == 1


@given(TEXT, st.floats(min_value=30, max_value=400), st.integers(min_value=1, max_value=4), st.sampled_from([0.0, 140]))
def test_what_is_fitted_fits(text: str, width: float, lines: int, tracking: float) -> None:
    block = fit(FACE, text, size=20, floor=6, width=width, max_lines=lines, tracking=tracking)
    assert len(block.lines) <= lines
    assert 6 <= block.size <= 20
    for line in block.lines:
        assert width_of(FACE, line.text, block.size, tracking=tracking) == pytest.approx(line.width)
        assert line.width <= width + 0.5
    assert not block.truncated or block.lines[-1].text.endswith(ELLIPSIS)


# -- what an ellipsis leaves ---------------------------------------------------

JOINED = st.text(alphabet="\nabcWil -/–éŠ.山田、שלx\u030c", min_size=20, max_size=120).map(
    lambda text: drawable(cleaned(text), FACES.common).text
)


def letter_at(text: str, start: int) -> str:
    """The blanks, the letter and its marks from *start* on."""
    end = start
    while end < len(text) and text[end] == " ":
        end += 1
    end += 1
    while end < len(text) and is_mark(text[end]):
        end += 1
    return text[start:end]


@given(JOINED, st.floats(min_value=30, max_value=150), st.integers(min_value=1, max_value=3))
def test_an_ellipsis_keeps_every_letter_that_has_room_and_its_marks(text: str, width: float, lines: int) -> None:
    block = fit(FACE, text, size=10, floor=6, width=width, max_lines=lines)
    if not block.truncated:
        return
    shown = "\n".join(paragraph.rstrip(" ") for paragraph in text.split("\n")) if lines > 1 else text.replace("\n", " ")
    before = "".join(line.text + line.after for line in block.lines[:-1])
    assert shown.startswith(before)
    rest = shown[len(before) :].split("\n")[0]
    kept = block.lines[-1].text.removesuffix(ELLIPSIS)
    assert rest.startswith(kept)
    if kept == rest:
        return
    following = letter_at(rest, len(kept))
    assert not is_mark(following[0])
    # The pair of the last letter and the ellipsis may be kerned.
    assert width_of(FACE, kept + following + ELLIPSIS, block.size) > width - block.size / 8


@pytest.mark.parametrize(
    "words",
    [
        "24/7 Concierge Supporter Package including Backstage Tour and Dinner with the Artists",
        "Anna-Maria Kovács Szabó de la Vega y Santamaría Fernández Ortega",
        "Łucja Nguyễn-Świętopełk von und zu Hohenlohe GmbH & Co. KG, Abteilung Kultur",
        "Block Unterrangtribünenblockseitenplatz-Nordwestkurve",
    ],
)
@pytest.mark.parametrize("lines", [1, 2])
def test_an_ellipsis_is_at_the_end_of_its_line_wherever_hyphens_and_slashes_are(words: str, lines: int) -> None:
    width = width_of(FACE, words, 6) / (1.6 * lines)
    block = fit(FACE, words, size=10, floor=6, width=width, max_lines=lines)
    assert block.truncated
    assert block.lines[-1].width > 0.85 * width


def test_a_word_is_not_broken_at_a_joint_that_leaves_most_of_the_line_empty() -> None:
    word = "Al-Donaudampfschifffahrtsgesellschaft"
    assert len(break_lines(FACE, word, 12, width=width_of(FACE, word, 12) / 2)[0].text) > 10


def test_a_space_that_does_not_break_keeps_an_amount_whole() -> None:
    amount = "10\u202f000\u202f000,00\xa0€"
    block = fit(FACE, f"ab {amount}", size=20, floor=6, width=width_of(FACE, amount, 8), max_lines=3)
    assert [line.text for line in block.lines] == ["ab", amount]


# -- what is remembered ----------------------------------------------------------


def test_of_long_texts_few_are_remembered_and_of_short_ones_many() -> None:
    setter = Typesetter(FACES, remembered=256)
    texts = {"long": "long words " * 100, "short": "short words"}
    first = {name: weakref.ref(setter.break_lines("regular", text, 10, width=99)[0]) for name, text in texts.items()}
    for number in range(8):
        for text in texts.values():
            setter.break_lines("regular", f"{number} {text}", 10, width=99)
    gc.collect()
    assert first["short"]() is setter.break_lines("regular", texts["short"], 10, width=99)[0]
    assert first["long"]() is None


def test_a_line_that_fits_is_left_as_it_is() -> None:
    block = fit(FACE, "Anna", size=12, floor=6, width=200)
    assert (block.size, block.lines[0].text, block.truncated) == (12, "Anna", False)


def test_shrinking_comes_before_breaking_and_breaking_before_cutting() -> None:
    words = "Donaudampfschiff"
    wide = width_of(FACE, words, 20)
    assert fit(FACE, words, size=20, floor=10, width=wide * 0.6, max_lines=2).lines[0].text == words
    broken = fit(FACE, words, size=20, floor=16, width=wide * 0.6, max_lines=2)
    assert (broken.size, len(broken.lines), broken.truncated) == (16, 2, False)
    assert fit(FACE, words, size=20, floor=16, width=wide * 0.2, max_lines=2).truncated


def test_a_low_box_has_fewer_lines_than_it_is_allowed() -> None:
    tall = fit(FACE, "one two three four five six", size=12, floor=12, width=60, max_lines=9, height=200)
    low = fit(FACE, "one two three four five six", size=12, floor=12, width=60, max_lines=9, height=20)
    assert len(low.lines) < len(tall.lines)
    assert low.truncated


def test_a_word_is_broken_at_its_hyphen_if_it_must_be_broken() -> None:
    lines = break_lines(FACE, "Hohenlohe-Schillingsfürst", 12, width=80)
    assert lines[0].text == "Hohenlohe-"


def test_a_hyphenated_name_stays_whole_on_a_line_of_its_own() -> None:
    assert [line.text for line in break_lines(FACE, "Anna Maria Meyer-Landrut", 12, width=85)][-1] == "Meyer-Landrut"


def test_east_asian_signs_stand_where_they_may() -> None:
    """No line begins with a closing sign or ends with an opening one."""
    text = "開演後のご入場は、お断りする「場合」がございます。場内での撮影・録音は固くお断りいたします。"
    for width in range(40, 200, 7):
        for line in break_lines(FACE, text, 10, width=width)[1:]:
            assert line.text[0] not in "、。」・"
        for line in break_lines(FACE, text, 10, width=width)[:-1]:
            assert line.text[-1] != "「"


def test_a_title_is_broken_into_lines_of_about_one_length() -> None:
    words = "The Extraordinary Voyage of the Good Ship Clementine"
    width = width_of(FACES.bold, words, 20) * 0.62
    balanced = fit(FACES.bold, words, size=20, floor=20, width=width, max_lines=3, balanced=True)
    plain = fit(FACES.bold, words, size=20, floor=20, width=width, max_lines=3)
    assert len(balanced.lines) == len(plain.lines) == 2

    def unevenness(lines: tuple[float, ...]) -> float:
        return max(lines) - min(lines)

    assert unevenness(tuple(x.width for x in balanced.lines)) < unevenness(tuple(x.width for x in plain.lines))


def test_pairs_of_letters_are_kerned() -> None:
    assert width_of(FACE, "AV", 10) < width_of(FACE, "A", 10) + width_of(FACE, "V", 10)


def test_tracking_is_part_of_the_width() -> None:
    assert width_of(FACE, "abc", 10, tracking=100) == pytest.approx(width_of(FACE, "abc", 10) + 3)


def test_an_accent_without_a_composed_letter_takes_no_room_and_clears_its_letter() -> None:
    assert width_of(FACE, "X\u030c", 10) == width_of(FACE, "X", 10)
    line = break_lines(FACE, "X\u030c", 10, width=100)[0]
    assert " Ts" in show(FACE, line, 10).operators


@pytest.mark.parametrize("cluster", ["x\u030c", "X\u030c", "i\u0331"])
def test_a_mark_is_centred_on_its_letter(cluster: str) -> None:
    """At the middle of the outline, not of the advance."""
    letter, mark = (FACE.glyphs[char] for char in cluster)
    at, _ = _over(letter, mark, cluster[1])
    middle = at + (mark.box[0] + mark.box[2]) / 2
    assert middle == pytest.approx((letter.box[0] + letter.box[2]) / 2, abs=1)
    assert letter.box[3] < 1000


def test_bold_of_a_font_without_a_bold_is_drawn_with_an_outline(faces: Faces) -> None:
    line = break_lines(faces.bold, "A山A", 10, width=100)[0]
    shown = show(faces.bold, line, 10)
    assert shown.is_thickened
    assert shown.operators.index("2 Tr") < shown.operators.index("0 Tr")
    assert not show(faces.regular, line, 10).is_thickened


@pytest.mark.parametrize(
    "line, shown",
    [("abc", "abc"), ("שלום", "םולש"), ("(שלום)", "(םולש)"), ("שלום 123", "123 םולש"), ("abc שלום", "abc םולש")],
)
def test_lines_are_put_into_the_order_of_paper_after_they_are_broken(line: str, shown: str) -> None:
    assert visual(line, right_to_left=line[0] in "(ש") == shown


@pytest.mark.parametrize(
    "words", ["a" * 20000, "山" * 20000, "a\u0301" * 10000, " " * 20000, "-" * 20000, "שa" * 10000]
)
def test_long_text_is_set_in_time_that_grows_with_it(words: str) -> None:
    """No assertion on time: the test ends, which a loop that shrinks by a point at a time would not."""
    assert fit(FACE, drawable(cleaned(words), FACES.common).text, size=30, floor=5, width=100, max_lines=3).lines
