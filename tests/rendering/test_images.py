"""Organisers' pictures: right way up, right colours, right size, and refused by name when they cannot be used."""

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pillow
from PIL import ImageCms

from stagedoor.errors import ConfigurationError
from stagedoor_renderers.kit import images
from stagedoor_renderers.kit.images import ImageError, read_image
from stagedoor_renderers.ticket_pdf import TicketPdf
from tests.rendering.orders import no_check, position, request, whole
from tests.rendering.reading import codes_of, picture_of
from tests.rendering.test_isolation import in_process
from tests.rendering.test_layouts import GOOD

MEGABYTE = 1024 * 1024

RED, GREEN = (200, 30, 40), (20, 160, 60)


def file_of(image: Pillow.Image, form: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def solid(mode: str = "RGB", color: Any = RED, size: tuple[int, int] = (60, 30)) -> Pillow.Image:
    return Pillow.new(mode, size, color)


def read(data: bytes, side: float = 40.0) -> images.Image:
    return read_image(data, "logo.png", width_mm=side, height_mm=side)


def with_logo(tmp_path: Path, data: bytes, name: str = "logo.png", ground: str = "") -> TicketPdf:
    """A renderer whose one layout has the logo in a box of 40 x 20 mm at the left of the foot."""
    box = '[[box]]\ntype = "image"\nimage = "logo"\nx = 5\ny = 75\nw = 40\nh = 20\nalign = "left"\n'
    (tmp_path / "own.toml").write_text(
        GOOD.replace("x = 30\ny = 40", "x = 55\ny = 25") + ground + box, encoding="utf-8"
    )
    (tmp_path / name).write_bytes(data)
    renderer = TicketPdf(layouts=tmp_path, layout="own")
    renderer.warm_up()
    return renderer


def colors_on_paper(renderer: TicketPdf) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """The colours at the left and right quarter of the logo's place, as they are seen."""
    import pypdfium2

    document = pypdfium2.PdfDocument(renderer.render(request(), no_check))
    image = document[0].render(scale=254 / 72).to_pil().convert("RGB")
    document.close()
    left, right = image.getpixel((150, 850)), image.getpixel((350, 850))
    assert isinstance(left, tuple)
    assert isinstance(right, tuple)
    return left[:3], right[:3]


def close(found: tuple[int, int, int], wanted: tuple[int, int, int], by: int = 12) -> bool:
    return all(abs(one - other) <= by for one, other in zip(found, wanted, strict=True))


@pytest.mark.parametrize(
    "form, name", [("PNG", "logo.png"), ("JPEG", "logo.jpg"), ("JPEG", "logo.jpeg"), ("WEBP", "logo.webp")]
)
def test_png_jpeg_and_webp_are_drawn(tmp_path: Path, form: str, name: str) -> None:
    left, right = colors_on_paper(with_logo(tmp_path, file_of(solid(), form), name))
    assert close(left, RED)
    assert close(right, RED)


@pytest.mark.parametrize("form, name", [("PNG", "logo.png"), ("WEBP", "logo.webp")])
def test_what_is_transparent_shows_the_paper_not_the_hidden_colour(tmp_path: Path, form: str, name: str) -> None:
    image = solid("RGBA", (*RED, 255))
    image.paste((0, 0, 0, 0), (30, 0, 60, 30))
    left, right = colors_on_paper(
        with_logo(tmp_path, file_of(image, form, **({"lossless": True} if form == "WEBP" else {})), name)
    )
    assert close(left, RED)
    assert right == (255, 255, 255)


def test_a_palette_with_a_transparent_colour_is_transparent(tmp_path: Path) -> None:
    image = solid("P", 1)
    image.putpalette([0, 0, 0, *RED])
    image.paste(0, (30, 0, 60, 30))
    left, right = colors_on_paper(with_logo(tmp_path, file_of(image, transparency=0)))
    assert close(left, RED)
    assert right == (255, 255, 255)


def test_a_picture_taken_sideways_is_turned_upright(tmp_path: Path) -> None:
    """EXIF says "turn by 90 degrees": what is stored above is to be seen at the right."""
    image = Pillow.new("RGB", (30, 60), RED)
    image.paste(GREEN, (0, 30, 30, 60))
    exif = Pillow.Exif()
    exif[0x0112] = 6
    left, right = colors_on_paper(with_logo(tmp_path, file_of(image, "JPEG", exif=exif, quality=95), "logo.jpg"))
    assert close(left, GREEN, 25)
    assert close(right, RED, 25)


def test_cmyk_is_converted_when_it_is_loaded_never_inverted(tmp_path: Path) -> None:
    """Full magenta and yellow is red; a viewer that inverts would show cyan."""
    image = solid("CMYK", (0, 230, 230, 0))
    left, _ = colors_on_paper(with_logo(tmp_path, file_of(image, "JPEG", quality=95), "logo.jpg"))
    assert left[0] > 200
    assert left[1] < 90
    assert left[2] < 90
    assert b"DeviceCMYK" not in with_logo(tmp_path, file_of(image, "JPEG"), "logo.jpg").render(request(), no_check)


def without_adobe(jpeg: bytes) -> bytes:
    """The same file without its marker APP14, by which a reader knows that inks are inverted."""
    at = jpeg.index(b"\xff\xee")
    (length,) = struct.unpack_from(">H", jpeg, at + 2)
    return jpeg[:at] + jpeg[at + 2 + length :]


def test_cmyk_without_the_marker_of_adobe_is_not_inverted_either(tmp_path: Path) -> None:
    """Such a file holds inks as they are: what is written here is full magenta and yellow."""
    data = without_adobe(file_of(solid("CMYK", (255, 25, 25, 255)), "JPEG", quality=95))
    left, _ = colors_on_paper(with_logo(tmp_path, data, "logo.jpg"))
    assert left[0] > 200
    assert left[1] < 90
    assert left[2] < 90


def test_cmyk_that_was_taken_sideways_is_turned_upright(tmp_path: Path) -> None:
    exif = Pillow.Exif()
    exif[0x0112] = 6
    image = solid("CMYK", (255, 25, 25, 255), (30, 60))
    data = without_adobe(file_of(image, "JPEG", exif=exif))
    assert read_image(data, "logo.jpg", width_mm=40, height_mm=40).width == 60


PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""Where each pass of an interlaced PNG begins, and its steps: x, y, x, y."""


def interlaced(image: Pillow.Image) -> bytes:
    """An interlaced PNG, which Pillow reads and does not write."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">L", len(data)) + kind + data + struct.pack(">L", zlib.crc32(kind + data))

    rows = bytearray()
    for x0, y0, step_x, step_y in PASSES:
        for y in range(y0, image.height, step_y):
            row = [image.getpixel((x, y)) for x in range(x0, image.width, step_x)]
            rows += b"\0" + b"".join(bytes(pixel) for pixel in row if isinstance(pixel, tuple)) if row else b""
    head = struct.pack(">LL5B", image.width, image.height, 8, 2, 0, 0, 1)
    data = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(rows))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + data


def test_an_interlaced_png_is_drawn(tmp_path: Path) -> None:
    image = solid()
    image.paste(GREEN, (30, 0, 60, 30))
    data = interlaced(image)
    assert Pillow.open(io.BytesIO(data)).info["interlace"] == 1
    left, right = colors_on_paper(with_logo(tmp_path, data))
    assert close(left, RED)
    assert close(right, GREEN)


def test_colours_of_a_profile_are_converted() -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    assert read(file_of(solid(), icc_profile=profile)).width == 60


def test_a_broken_profile_does_not_lose_the_picture() -> None:
    assert read(file_of(solid(), icc_profile=b"no profile at all" * 20)).width == 60


def test_a_progressive_jpeg_is_drawn(tmp_path: Path) -> None:
    left, _ = colors_on_paper(with_logo(tmp_path, file_of(solid(), "JPEG", progressive=True), "logo.jpg"))
    assert close(left, RED)


def test_a_picture_is_never_larger_than_300_dpi() -> None:
    image = read(file_of(solid(size=(3000, 1500))), side=25.4)
    assert (image.width, image.height) == (300, 150)


def test_a_photograph_is_stored_as_one() -> None:
    noise = Pillow.effect_noise((800, 800), 80).convert("RGB")
    assert "/DCTDecode" in read(file_of(noise), side=200).entries
    assert "/FlateDecode" in read(file_of(solid())).entries


@pytest.mark.parametrize(
    "data, said",
    [
        (b"", "is no PNG, JPEG or WebP file"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "is no PNG, JPEG or WebP file"),
        (file_of(solid(), "GIF"), "is no PNG, JPEG or WebP file"),
        (file_of(solid(size=(900, 900)))[:400], "is damaged"),
        (file_of(solid("1", 0, (20000, 20000))), "is too large|has 20000 x 20000 pixels"),
        (file_of(solid("1", 0, (6000, 6000))), "has 6000 x 6000 pixels"),
        (b"\x89PNG" + b"x" * images.MAX_BYTES, "at most"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_file(data: bytes, said: str) -> None:
    with pytest.raises(ImageError, match=f"image logo.png.*({said})"):
        read(data)


def test_twelve_megapixels_are_accepted() -> None:
    assert read(file_of(solid("L", 90, (4000, 3000)))).width


def test_a_layout_whose_picture_is_missing_is_refused_at_start(tmp_path: Path) -> None:
    """Not when the first ticket is drawn, after somebody has paid for it."""
    with pytest.raises(ConfigurationError, match=r"own\.toml: box 3: there is no image logo beside it"):
        with_logo(tmp_path, file_of(solid()), name="other.png")


def test_a_layout_whose_picture_is_damaged_is_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"own\.toml: box 3: image logo\.png is no PNG"):
        with_logo(tmp_path, b"broken")


def test_a_picture_is_in_the_document_once_however_many_tickets_show_it(tmp_path: Path) -> None:
    renderer = with_logo(tmp_path, file_of(Pillow.effect_noise((400, 200), 80).convert("RGB")))
    one = renderer.render(request(), no_check)
    twenty = renderer.render(whole(request(*(position(n) for n in range(1, 21)))), no_check)
    assert twenty.count(b"/Subtype /Image") == one.count(b"/Subtype /Image") == 1
    assert len(codes_of(twenty)) == 20


def test_documents_with_pictures_are_the_same_every_time(tmp_path: Path) -> None:
    first = with_logo(tmp_path, file_of(solid("RGBA", (*RED, 120)))).render(request(), no_check)
    again = TicketPdf(layouts=tmp_path, layout="own")
    assert again.render(request(), no_check) == first


def test_a_picture_is_seen_in_grey_too(tmp_path: Path) -> None:
    assert picture_of(with_logo(tmp_path, file_of(solid("L", 90))).render(request(), no_check)).getextrema()[0] == 0


MANY = """
import sys
import tracemalloc
from pathlib import Path
from tests.rendering.orders import no_check, position, request, whole
from stagedoor_renderers.ticket_pdf import TicketPdf

renderer = TicketPdf(layouts=Path(sys.argv[1]), layout="own")
renderer.warm_up()
tracemalloc.start()
pdf = renderer.render(whole(request(*(position(n, holder=f"Guest {n}") for n in range(1, 501)))), no_check)
_, peak = tracemalloc.get_traced_memory()
print(peak, len(pdf), pdf.count(b"/Type /Page") - pdf.count(b"/Type /Pages"), pdf.count(b"/Subtype /Image"))
"""


def test_five_hundred_tickets_with_a_large_background_stay_within_their_memory(tmp_path: Path) -> None:
    """The picture, two megabytes as it is embedded, is there once: the document grows by its tickets alone."""
    picture = file_of(Pillow.effect_noise((2000, 2000), 60).convert("RGB"), "JPEG", quality=90)
    with_logo(tmp_path, picture, "logo.jpg")
    text = (tmp_path / "own.toml").read_text("utf-8").replace("height = 100", "height = 200")
    text = text.replace("width = 100", "width = 200").replace("w = 40\nh = 20", "w = 195\nh = 125")
    (tmp_path / "own.toml").write_text(text, encoding="utf-8")
    peak, size, pages, pictures = map(int, in_process(MANY, str(tmp_path)).split())
    assert (pages, pictures) == (500, 1)
    assert 2 * MEGABYTE < size < 5 * MEGABYTE
    assert peak < 24 * MEGABYTE
