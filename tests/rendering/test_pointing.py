"""Letters of Hebrew and Arabic with their points: where the points sit, and what is copied."""

import io
import struct
import unicodedata

import pypdf
import pytest

from stagedoor_renderers.kit.anchors import Anchors, read_anchors
from stagedoor_renderers.kit.cutting import Composite, _components, box_of
from stagedoor_renderers.kit.direction import visual
from stagedoor_renderers.kit.faces import Face, Faces
from stagedoor_renderers.kit.pages import PAGE_SIZE
from stagedoor_renderers.kit.pointing import composed, pointed_page
from stagedoor_renderers.kit.scripts import SEAM
from stagedoor_renderers.kit.sfnt import TrueType
from stagedoor_renderers.kit.text import cleaned, drawable, spoken
from stagedoor_renderers.ticket_pdf import TicketPdf
from tests.rendering.orders import event, no_check, position, request

type Box = tuple[int, int, int, int]


@pytest.fixture(params=["regular", "bold"])
def face(request: pytest.FixtureRequest, faces: Faces) -> Face:
    return faces[request.param]


def font_of(face: Face) -> TrueType:
    return face.glyphs["ש"].page.font


def cluster_of(text: str) -> str:
    """Return what was typed as a cluster: joined, and from left to right."""
    return visual(drawable(cleaned(text), {chr(code) for code in range(0x10000)}).text, right_to_left=True)


def boxes_of(face: Face, text: str) -> tuple[Box, list[Box]]:
    """Return the box of the letter alone, and those of what was put onto it, as the font composes them too."""
    font = font_of(face)
    (letter, *_), *points = composed(font, cluster_of(text)).parts
    return font.glyph_bbox(letter), [box_of(font, Composite(((glyph, x, y),))) for glyph, x, y in points]


def middle(box: Box) -> float:
    return (box[0] + box[2]) / 2


def dot_of(font: TrueType, whole: int, letter: int) -> Box:
    """Return the box of what a glyph of the font has besides its letter."""
    outline = font.glyph(whole)
    for part, at in _components(outline):
        if part != letter:
            are_words = struct.unpack_from(">H", outline, at - 2)[0] & 1
            x, y = struct.unpack_from(">hh" if are_words else ">bb", outline, at + 2)
            return box_of(font, Composite(((part, x, y),)))
    raise AssertionError("it has nothing besides")


def test_the_dots_of_shin_and_sin_tell_them_apart(face: Face) -> None:
    """By nothing else: a dot in the middle would be neither letter."""
    font = font_of(face)
    letter = font.cmap[ord("ש")]
    left, _, right, top = font.glyph_bbox(letter)
    of_shin, of_sin = (dot_of(font, composed(font, cluster_of(typed)).parts[0][0], letter) for typed in ("שׁ", "שׂ"))
    assert of_shin[1] > top - 50 < of_sin[1]
    assert middle(of_sin) < left + (right - left) / 3
    assert right - (right - left) / 3 < middle(of_shin) < right


def test_a_vowel_is_below_its_letter_and_within_it(face: Face) -> None:
    letter, (vowel,) = boxes_of(face, "לָ")
    assert vowel[3] <= letter[1] + 50
    assert letter[0] <= middle(vowel) <= letter[2]


@pytest.mark.parametrize("joined", ["مُ", "طُ", "دُ"])
def test_a_point_is_above_its_letter_however_tall_that_is(face: Face, joined: str) -> None:
    letter, (point,) = boxes_of(face, joined)
    assert point[1] >= letter[3]
    assert letter[0] - 200 <= middle(point) <= letter[2] + 200


def test_a_vowel_stands_on_what_doubles_the_letter(face: Face) -> None:
    """Composition puts it before, in the text."""
    letter, (shadda, fatha) = boxes_of(face, "مَّ")
    assert letter[3] <= shadda[1] < shadda[3] <= fatha[1]


def test_each_letter_of_a_ligature_has_its_own_points(face: Face) -> None:
    """Lam and alef are one glyph, lam on the right."""
    _, (of_lam, of_alef) = boxes_of(face, "لَأَ")
    assert middle(of_alef) < middle(of_lam)
    _, (alone,) = boxes_of(face, "لأَ")
    assert alone == of_alef


@pytest.mark.parametrize("typed", ["لَا", "لِأَ", "لَآ", "لِإ", "سلَا", "لا", "مُحَمَّد", "لا لَا", "السلام لا لِأ"])
def test_what_is_drawn_can_be_spoken_as_it_was_typed(typed: str) -> None:
    shown = drawable(cleaned(typed), {chr(code) for code in range(0x10000)}).text
    assert shown != typed
    assert spoken(shown) == unicodedata.normalize("NFC", typed)


def test_a_point_behind_a_joiner_stays_with_its_letter() -> None:
    shown = drawable(cleaned("\u0627\u0625\u200d\u064b\u0628"), {chr(code) for code in range(0x10000)}).text
    assert spoken(shown).replace("\u200d", "") == "\u0627\u0625\u064b\u0628"


def test_a_lam_without_points_is_joined_without_a_seam() -> None:
    assert drawable("لا", {chr(code) for code in range(0x10000)}).text == "\ufefb"
    assert SEAM in drawable("لَا", {chr(code) for code in range(0x10000)}).text
    assert SEAM not in cleaned(f"l{SEAM}a")


def test_a_page_is_a_pure_function_of_its_clusters(face: Face) -> None:
    font = font_of(face)
    clusters = [cluster_of(text) for text in ("שָׁ", "לָ", "מֹ")]
    one, codes = pointed_page(font, "D", clusters)
    other, same = pointed_page(font, "D", [*reversed(clusters), clusters[0]])
    assert (one.resource, codes) == (other.resource, same)
    assert one.cut().font_file == other.cut().font_file
    assert one.cut().to_unicode == other.cut().to_unicode
    assert pointed_page(font, "D", clusters[1:])[0].resource != one.resource


def test_a_page_has_room_for_no_more_than_its_codes(face: Face) -> None:
    many = [f"{point}{letter}" for letter in map(chr, range(0x5D0, 0x5EB)) for point in map(chr, range(0x5B0, 0x5BC))]
    assert len(many) > PAGE_SIZE
    _, codes = pointed_page(font_of(face), "D", [cluster for cluster in many if ord(cluster[0]) in font_of(face).cmap])
    assert len(codes) == PAGE_SIZE
    assert max(codes.values()) == 255


def test_the_title_of_a_document_has_letters_not_their_joined_forms(ticket: TicketPdf) -> None:
    pdf = ticket.render(request(position(), event=event(name="سَلَام")), no_check)
    metadata = pypdf.PdfReader(io.BytesIO(pdf)).metadata
    assert metadata is not None
    assert "سَلَام" in str(metadata.title)


def test_a_font_without_anchors_has_none() -> None:
    assert read_anchors(b"") == Anchors()
