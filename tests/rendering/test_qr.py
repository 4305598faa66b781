"""QR codes: the standard's own, chosen faster; and readable after a bad print and a bad camera."""

import random
from collections.abc import Callable

import pytest
import segno
from PIL import Image, ImageFilter

from stagedoor.errors import InvalidRequest
from stagedoor_renderers.kit.qr import QrTooSmall, needed_mm, qr_code
from stagedoor_renderers.ticket_pdf import TicketPdf
from tests.rendering.orders import no_check, request, token
from tests.rendering.reading import codes_in, picture_of

TOKENS = [token(number) for number in range(40)] + ["A", "1234567", "a.b/c?d=e", "X" * 63, "ABC" * 40, "a" * 200]


def standard_score(rows: tuple[str, ...]) -> int:
    """The penalty of ISO/IEC 18004, counted module by module."""
    size, score = len(rows), 0
    columns = tuple("".join(row[x] for row in rows) for x in range(size))
    for line in (*rows, *columns):
        start = 0
        while start < size:
            end = start
            while end < size and line[end] == line[start]:
                end += 1
            score += max(0, end - start - 2) if end - start >= 5 else 0
            start = end
        for start in range(size - 6):
            before, after = line[max(0, start - 4) : start], line[start + 7 : start + 11]
            if line[start : start + 7] == "1011101" and ("1" not in before or "1" not in after):
                score += 40
    for y in range(size - 1):
        for x in range(size - 1):
            score += 3 if rows[y][x] == rows[y][x + 1] == rows[y + 1][x] == rows[y + 1][x + 1] else 0
    dark = sum(row.count("1") for row in rows)
    return score + 10 * (abs(dark * 20 - size * size * 10) // (size * size))


@pytest.mark.parametrize("words", TOKENS)
def test_a_code_is_one_of_the_encoders_eight_and_the_best_of_them(words: str) -> None:
    """The text is encoded by XOR of patterns and the mask chosen on one integer; the encoder agrees with both."""
    code = qr_code(words, side_mm=60)
    version = (code.size - 17) // 4
    made = [
        segno.make_qr(words, error=code.level, version=version, mask=mask, boost_error=False).matrix
        for mask in range(8)
    ]
    eight = [tuple("".join(map(str, row)) for row in matrix) for matrix in made]
    assert code.rows in eight
    assert standard_score(code.rows) == min(map(standard_score, eight))


@pytest.mark.parametrize("side, level", [(16.5, "Q"), (26.4, "Q"), (29.7, "H"), (42, "H")])
def test_the_error_level_is_the_highest_that_keeps_modules_wide(side: float, level: str) -> None:
    code = qr_code(token(1), side_mm=side)
    assert code.level == level
    assert code.module_mm >= 0.5


def test_a_box_that_is_too_small_says_what_is_needed() -> None:
    with pytest.raises(QrTooSmall) as caught:
        qr_code(token(1), side_mm=16)
    assert caught.value.needed_mm == needed_mm(token(1)) == 16.5


@pytest.mark.parametrize("words", ["", "Zoë", "a b", "a\n", "x" * 513, "\u0000"])
def test_what_is_no_opaque_token_is_refused(words: str) -> None:
    with pytest.raises(InvalidRequest, match=r"position\.token"):
        qr_code(words, side_mm=60)


def plain(image: Image.Image) -> Image.Image:
    return image


def turned(image: Image.Image) -> Image.Image:
    return image.rotate(17, expand=True, fillcolor=255, resample=Image.Resampling.BICUBIC)


def blurred(image: Image.Image) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(image.width / 900))


def printed_badly(image: Image.Image) -> Image.Image:
    """Grey instead of black, speckles, and a slight blur: an old printer and a cheap camera."""
    generator = random.Random(7)
    grey = image.point([min(255, 70 + level * 170 // 255) for level in range(256)])
    pixels = grey.load()
    assert pixels is not None
    for _ in range(grey.width * grey.height // 60):
        pixels[generator.randrange(grey.width), generator.randrange(grey.height)] = generator.randrange(256)
    return grey.filter(ImageFilter.GaussianBlur(0.8))


@pytest.mark.parametrize("layout", ["a4-fold", "a5", "phone", "thermal-80", "wristband"])
@pytest.mark.parametrize("spoil", [plain, turned, blurred, printed_badly], ids=lambda spoil: spoil.__name__)
@pytest.mark.parametrize("dpi", [150, 300])
def test_a_code_is_read_back_at_150_and_300_dpi(
    ticket: TicketPdf, layout: str, spoil: Callable[[Image.Image], Image.Image], dpi: int
) -> None:
    image = picture_of(ticket.render(request(layout=layout), no_check), dpi=dpi)
    assert codes_in(spoil(image)) == [token(1)]


@pytest.mark.parametrize("layout", ["a4-fold", "a5", "phone", "thermal-80", "wristband"])
def test_a_code_is_read_back_upright_at_72_dpi(ticket: TicketPdf, layout: str) -> None:
    assert codes_in(picture_of(ticket.render(request(layout=layout), no_check), dpi=72)) == [token(1)]


@pytest.mark.parametrize("layout", ["a4-fold", "a5", "phone", "thermal-80"])
@pytest.mark.parametrize("spoil", [turned, blurred], ids=lambda spoil: spoil.__name__)
def test_a_code_of_wide_modules_is_read_back_spoiled_at_72_dpi(
    ticket: TicketPdf, layout: str, spoil: Callable[[Image.Image], Image.Image]
) -> None:
    assert codes_in(spoil(picture_of(ticket.render(request(layout=layout), no_check), dpi=72))) == [token(1)]
