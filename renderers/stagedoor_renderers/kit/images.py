"""Organisers' pictures, made ready once: turned upright, in sRGB, small enough, compressed.

A document embeds the finished bytes. Whatever is wrong with a file is found when
it is loaded, at start, and named with the file: a logo that is missing or broken
never fails a ticket that somebody has paid for.
"""

import hashlib
import io
import warnings
import zlib
from collections.abc import Mapping

import attrs
from PIL import Image as Pillow
from PIL import ImageChops, ImageCms, ImageOps, UnidentifiedImageError
from PIL.PngImagePlugin import PngImageFile

MAX_BYTES = 10 * 1024 * 1024
MAX_PIXELS = 25_000_000
"""Checked from the header, before anything is decoded: a small file may claim to be enormous."""

DPI = 300
"""More than that no printer shows; larger pictures are scaled down when they are loaded."""

_FORMATS = ("PNG", "JPEG", "WEBP")
_STEPS: Mapping[object, float] = {"L;2": 85.0, "L;4": 17.0, "I;16B": 1 / 256, "RGB;16B": 1 / 256}
"""For each form of PNG that Pillow scales to 8 bits: by how much."""

_JPEG_QUALITY = 88
_LOSSLESS_LIMIT = 400_000
"""A lossless stream above this many bytes is a photograph in the wrong format, and stored as JPEG."""


class ImageError(Exception):
    """A picture cannot be used; the message names the file and says why."""


@attrs.frozen(kw_only=True, eq=False)
class Image:
    """A picture, ready to be embedded: entries of its PDF object, its bytes, and the same for its transparency."""

    name: str
    width: int
    height: int
    entries: str
    data: bytes = attrs.field(repr=False)
    mask_entries: str = ""
    mask: bytes = attrs.field(default=b"", repr=False)


def read_image(data: bytes, file: str, *, width_mm: float, height_mm: float) -> Image:
    """Return the picture in *data*, for places of at most *width_mm* by *height_mm*.

    Raises:
        ImageError: it is too large, damaged, or of another format than PNG, JPEG and WebP.
    """
    if len(data) > MAX_BYTES:
        raise ImageError(f"image {file} has {len(data)} bytes; at most {MAX_BYTES} are accepted")
    try:
        with warnings.catch_warnings():
            # Pillow warns of large pictures and goes on; here the limit is the limit.
            warnings.simplefilter("ignore", Pillow.DecompressionBombWarning)
            with Pillow.open(io.BytesIO(data), formats=_FORMATS) as opened:
                return _ready(opened, file, width_mm=width_mm, height_mm=height_mm)
    except UnidentifiedImageError:
        raise ImageError(f"image {file} is no PNG, JPEG or WebP file") from None
    except Pillow.DecompressionBombError as error:
        raise ImageError(f"image {file} is too large: {error}") from None
    except (OSError, ValueError, SyntaxError, zlib.error) as error:
        raise ImageError(f"image {file} is damaged: {error}") from error


def _ready(opened: Pillow.Image, file: str, *, width_mm: float, height_mm: float) -> Image:
    if opened.width * opened.height > MAX_PIXELS:
        raise ImageError(
            f"image {file} has {opened.width} x {opened.height} pixels; at most {MAX_PIXELS} in all are accepted"
        )
    is_photograph = opened.format in ("JPEG", "WEBP")
    # Animations have many pictures; the first one is loaded.
    opened.seek(0)
    picture = ImageOps.exif_transpose(_with_eight_bits(_with_true_inks(opened)))
    alpha = _alpha(picture)
    # With a transparent colour left in it, Pillow would look for one in every mode on the way.
    picture.info.pop("transparency", None)
    colors = _in_srgb(picture)
    most = (max(1, round(width_mm / 25.4 * DPI)), max(1, round(height_mm / 25.4 * DPI)))
    if colors.width > most[0] or colors.height > most[1]:
        colors.thumbnail(most, Pillow.Resampling.LANCZOS)
        if alpha is not None:
            alpha = alpha.resize(colors.size, Pillow.Resampling.LANCZOS)
    return _stored(colors, alpha, is_photograph=is_photograph)


def _with_true_inks(opened: Pillow.Image) -> Pillow.Image:
    """Return the picture with its inks the right way round, if it has inks.

    Adobe writes CMYK inverted and says so in a marker; Pillow turns every CMYK JPEG
    round when it decodes, also those of programs that write inks as they are.
    """
    if opened.mode == "CMYK" and opened.format == "JPEG" and "adobe" not in opened.info:
        turned = ImageChops.invert(opened)
        turned.info = dict(opened.info)
        return turned
    return opened


def _with_eight_bits(opened: Pillow.Image) -> Pillow.Image:
    """Return the picture with 8 bits a channel, and with its transparent colour in the same steps.

    Pillow has 16 bits of grey in a mode of its own and cuts it off at 255 on the way to any
    other, and it compares a transparent colour with pixels that it has scaled already.
    """
    step = _STEPS.get(opened.tile[0].args) if isinstance(opened, PngImageFile) and opened.tile else None
    if step is None:
        return opened
    is_deep_grey = opened.mode == "I;16"
    # The higher byte of each pixel, as Pillow does it with 16 bits of colour.
    scaled = Pillow.frombytes("L", opened.size, opened.tobytes()[1::2]) if is_deep_grey else opened.copy()
    scaled.info = dict(opened.info)
    if (hidden := scaled.info.get("transparency")) is not None:
        scaled.info["transparency"] = (
            tuple(int(value * step) for value in hidden) if isinstance(hidden, tuple) else int(hidden * step)
        )
    return scaled


def _in_srgb(picture: Pillow.Image) -> Pillow.Image:
    """Return the colours as sRGB; those of CMYK and of profiles are converted, not guessed at by a viewer."""
    if profile := picture.info.get("icc_profile"):
        try:
            source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            described = _as_described(picture, source.profile.xcolor_space.strip())
            if described is not None:
                converted = ImageCms.profileToProfile(
                    described, source, ImageCms.createProfile("sRGB"), outputMode="RGB"
                )
                if converted is not None:
                    return converted
        except (ImageCms.PyCMSError, OSError):
            pass  # a profile that is broken: better the plain colours than no logo
    return picture.convert("RGB")


def _as_described(picture: Pillow.Image, space: str) -> Pillow.Image | None:
    """Return *picture* without its transparency in the colour space of its profile; None if that is another's."""
    has_inks = picture.mode == "CMYK"
    if space == "CMYK":
        return picture if has_inks else None
    if space == "RGB":
        return picture.convert("RGB") if not has_inks else None
    red, green, blue = (channel.tobytes() for channel in picture.convert("RGB").split())
    return picture.convert("L") if space == "GRAY" and not has_inks and red == green == blue else None


def _alpha(picture: Pillow.Image) -> Pillow.Image | None:
    """Return the transparency of *picture*, or None if it hides nothing."""
    if not picture.has_transparency_data:
        return None
    alpha = picture.convert("RGBA").getchannel("A")
    lowest, _ = alpha.getextrema()
    return None if lowest == 255 else alpha  # noqa: PLR2004 - wholly opaque


def _stored(colors: Pillow.Image, alpha: Pillow.Image | None, *, is_photograph: bool) -> Image:
    lossless = zlib.compress(colors.tobytes(), 9)
    if is_photograph or len(lossless) > _LOSSLESS_LIMIT:
        buffer = io.BytesIO()
        colors.save(buffer, "JPEG", quality=_JPEG_QUALITY, optimize=True, subsampling=0)
        data, coding = buffer.getvalue(), "/DCTDecode"
    else:
        data, coding = lossless, "/FlateDecode"
    mask = zlib.compress(alpha.tobytes(), 9) if alpha is not None else b""
    size = f"/Width {colors.width} /Height {colors.height} /BitsPerComponent 8"
    digest = hashlib.sha256(data + mask).hexdigest()
    return Image(
        name=f"I{digest[:12]}",
        width=colors.width,
        height=colors.height,
        entries=f"/Type /XObject /Subtype /Image {size} /ColorSpace /DeviceRGB /Filter {coding} /Length {len(data)}",
        data=data,
        mask_entries=(
            f"/Type /XObject /Subtype /Image {size} /ColorSpace /DeviceGray /Filter /FlateDecode /Length {len(mask)}"
            if mask
            else ""
        ),
        mask=mask,
    )
