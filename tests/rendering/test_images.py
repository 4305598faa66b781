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


def close(found: tuple[int, ...], wanted: tuple[int, ...], by: int = 12) -> bool:
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


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">L", len(data)) + kind + data + struct.pack(">L", zlib.crc32(kind + data))


def png(depth: int, kind: int, *rows: bytes, more: bytes = b"", width: int = 2) -> bytes:
    """A PNG of the given form; *rows* are as they are stored, *more* is the chunks before them."""
    head = chunk(b"IHDR", struct.pack(">LL5B", width, len(rows), depth, kind, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows)))
    return b"\x89PNG\r\n\x1a\n" + head + more + data + chunk(b"IEND", b"")


def pixels(image: images.Image) -> list[tuple[int, ...]]:
    """The pixels that a document embeds, each with its opacity if the picture has one."""
    assert "/FlateDecode" in image.entries
    colors = zlib.decompress(image.data)
    three = [tuple(colors[at : at + 3]) for at in range(0, len(colors), 3)]
    if not image.mask:
        return three
    return [(*color, alpha) for color, alpha in zip(three, zlib.decompress(image.mask), strict=True)]


PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""Where each pass of an interlaced PNG begins, and its steps: x, y, x, y."""


def interlaced(image: Pillow.Image) -> bytes:
    """An interlaced PNG, which Pillow reads and does not write."""
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


# -- more than 8 bits, and fewer ---------------------------------------------------

DEEP = 30000 // 256
"""What 30,000 of 65,535 is of 255."""


@pytest.mark.parametrize(
    "kind, channels, seen",
    [
        (0, (30000,), (DEEP, DEEP, DEEP)),
        (2, (30000, 60000, 0), (DEEP, 60000 // 256, 0)),
        (4, (30000, 40000), (DEEP, DEEP, DEEP, 40000 // 256)),
        (6, (30000, 60000, 0, 40000), (DEEP, 60000 // 256, 0, 40000 // 256)),
    ],
    ids=["grey", "colour", "grey with alpha", "colour with alpha"],
)
def test_sixteen_bits_a_channel_are_as_light_as_they_were(
    kind: int, channels: tuple[int, ...], seen: tuple[int, ...]
) -> None:
    row = struct.pack(f">{2 * len(channels)}H", *channels, *channels)
    assert pixels(read(png(16, kind, row, row))) == [seen] * 4


@pytest.mark.parametrize(
    "depth, row, hidden, seen",
    [
        (1, b"\x40", 1, (0, 0, 0)),
        (2, b"\x70", 3, (85, 85, 85)),
        (4, b"\x3f", 15, (51, 51, 51)),
        (8, b"\x33\xff", 255, (51, 51, 51)),
        (16, b"\x75\x30\xff\xff", 65535, (DEEP, DEEP, DEEP)),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
def test_the_transparent_grey_of_a_png_is_hidden_at_every_depth(
    depth: int, row: bytes, hidden: int, seen: tuple[int, ...]
) -> None:
    found = pixels(read(png(depth, 0, row, more=chunk(b"tRNS", struct.pack(">H", hidden)))))
    assert found == [(*seen, 255), (255, 255, 255, 0)]


def test_the_transparent_colour_of_sixteen_bits_is_hidden() -> None:
    row = struct.pack(">6H", 30000, 60000, 0, 60000, 0, 30000)
    found = pixels(read(png(16, 2, row, more=chunk(b"tRNS", struct.pack(">3H", 60000, 0, 30000)))))
    assert found == [(DEEP, 60000 // 256, 0, 255), (60000 // 256, 0, DEEP, 0)]


def test_sixteen_bits_of_grey_are_seen_on_paper(tmp_path: Path) -> None:
    row = struct.pack(">30H", *[30000] * 30) + struct.pack(">30H", *[60000] * 30)
    left, right = colors_on_paper(with_logo(tmp_path, png(16, 0, *[row] * 30, width=60)))
    assert close(left, (DEEP,) * 3)
    assert close(right, (60000 // 256,) * 3)


# -- profiles ----------------------------------------------------------------------


def swapped() -> bytes:
    """The profile of a device whose red is our green, and the other way round."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    red, green = profile.index(b"rXYZ", 128), profile.index(b"gXYZ", 128)
    profile[red : red + 4], profile[green : green + 4] = b"gXYZ", b"rXYZ"
    return bytes(profile)


def profile_of(space: bytes, connection: bytes, **tags: bytes) -> bytes:
    """An ICC profile of version 2 for an output device, with D50 as its white."""
    white = b"XYZ " + bytes(4) + struct.pack(">3l", 63190, 65536, 54061)
    parts = {b"wtpt": white, **{name.encode(): data + bytes(-len(data) % 4) for name, data in tags.items()}}
    table, body, at = struct.pack(">L", len(parts)), b"", 128 + 4 + 12 * len(parts)
    for name, data in parts.items():
        table += name + struct.pack(">LL", at + len(body), len(data))
        body += data
    head = struct.pack(">L4sL4s4s4s", at + len(body), bytes(4), 0x02400000, b"prtr", space, connection)
    head += struct.pack(">6H", 2026, 1, 1, 0, 0, 0) + b"acsp" + bytes(28) + white[8:]
    return head.ljust(128, b"\0") + table + body


def grey() -> bytes:
    """The profile of a device whose grey is as light as its value squared says."""
    return profile_of(b"GRAY", b"XYZ ", kTRC=b"curv" + bytes(4) + struct.pack(">LH", 1, 2 * 256))


def inks() -> bytes:
    """The profile of a press whose cyan is green, and whose magenta and yellow cannot be seen."""
    even = bytes(range(256))
    white, black, green = b"\xff\x80\x80", b"\x00\x80\x80", b"\x80\x40\xc0"
    # Two steps for each ink: cyan changes slowest, black fastest.
    grid = (white + black) * 4 + (green + black) * 4
    identity = struct.pack(">9l", *(65536 * (row == column) for row in range(3) for column in range(3)))
    lut = b"mft1" + bytes(4) + bytes((4, 3, 2, 0)) + identity + even * 4 + grid + even * 3
    return profile_of(b"CMYK", b"Lab ", A2B0=lut, A2B1=lut, A2B2=lut)


GREENED = (30, 200, 40)
"""What `RED` is on a device whose red is green."""


@pytest.mark.parametrize(
    "mode, form",
    [("RGB", "PNG"), ("RGBA", "PNG"), ("P", "PNG"), ("RGB", "JPEG"), ("RGB", "WEBP"), ("RGBA", "WEBP")],
)
def test_colours_of_a_profile_are_converted(mode: str, form: str) -> None:
    image = solid().convert(mode, palette=Pillow.Palette.ADAPTIVE)
    colors = set(converted(file_of(image, form, icc_profile=swapped(), quality=95, lossless=True)))
    assert all(close(color[:3], GREENED, 4) for color in colors), colors


def converted(data: bytes) -> list[tuple[int, ...]]:
    """The pixels of a picture that may be stored as JPEG, without their opacity."""
    image = read(data)
    if "/FlateDecode" in image.entries:
        return pixels(image)
    opened = Pillow.open(io.BytesIO(image.data))
    found = opened.convert("RGB").tobytes()
    return [tuple(found[at : at + 3]) for at in range(0, len(found), 3)]


def test_a_profile_leaves_what_is_transparent_as_it_was() -> None:
    image = Pillow.new("RGBA", (2, 1), (*RED, 128))
    image.putpixel((1, 0), (*RED, 7))
    found = pixels(read(file_of(image, icc_profile=swapped())))
    assert [pixel[3] for pixel in found] == [128, 7]
    assert all(close(pixel[:3], GREENED, 3) for pixel in found)


def test_a_palette_with_a_profile_keeps_its_transparency_too() -> None:
    image = Pillow.new("P", (2, 1), 1)
    image.putpalette([0, 0, 0, *RED])
    image.putpixel((0, 0), 0)
    found = pixels(read(file_of(image, transparency=b"\x00\x80", icc_profile=swapped())))
    assert [pixel[3] for pixel in found] == [0, 128]
    assert close(found[1][:3], GREENED, 3)


@pytest.mark.parametrize(
    "image",
    [
        png(8, 0, b"\x80\x80"),
        png(8, 4, b"\x80\xff\x80\xff"),
        png(16, 0, b"\x80\x00\x80\x00"),
        png(16, 4, b"\x80\x00\xff\xff\x80\x00\xff\xff"),
    ],
    ids=["8 bits", "8 bits with alpha", "16 bits", "16 bits with alpha"],
)
def test_grey_of_a_profile_is_converted(image: bytes) -> None:
    """A value of a half is a quarter of the light there, and 137 of 255 here."""
    with_profile = image[:33] + chunk(b"iCCP", b"grey\0\0" + zlib.compress(grey())) + image[33:]
    assert pixels(read(image)) == [(128, 128, 128)] * 2
    assert all(close(pixel[:3], (137, 137, 137), 3) for pixel in pixels(read(with_profile)))


def test_inks_of_a_profile_are_converted() -> None:
    """Cyan is green with the profile, whichever way round the file has it, and cyan without."""
    cyan, as_stored = solid("CMYK", (255, 0, 0, 0)), solid("CMYK", (0, 255, 255, 255))
    green = (0, 143, 0)
    assert close(converted(file_of(cyan, "JPEG", quality=95, icc_profile=inks()))[0], green, 4)
    assert close(converted(without_adobe(file_of(as_stored, "JPEG", quality=95, icc_profile=inks())))[0], green, 4)
    assert close(converted(file_of(cyan, "JPEG", quality=95))[0], (0, 255, 255), 12)


@pytest.mark.parametrize(
    "image, profile",
    [
        (solid(), b"no profile at all" * 20),
        (solid(), inks()),
        (solid(), grey()),
        (solid("CMYK", (0, 230, 230, 0)), swapped()),
    ],
    ids=["broken", "of inks", "of grey", "of colours"],
)
def test_a_profile_that_does_not_fit_does_not_lose_the_picture(image: Pillow.Image, profile: bytes) -> None:
    form = "JPEG" if image.mode == "CMYK" else "PNG"
    options: dict[str, Any] = {"quality": 95} if form == "JPEG" else {}
    assert converted(file_of(image, form, icc_profile=profile, **options)) == converted(file_of(image, form, **options))


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
