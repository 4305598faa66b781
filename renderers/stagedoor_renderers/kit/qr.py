"""QR codes that scan: sized in mm, pure black on white, with their quiet zone.

A code holds an opaque token in ASCII and nothing else. Its error level is the
highest that keeps a module at least half a millimetre wide in the box that the
layout gives it.
"""

import re

import attrs
import segno

from stagedoor.errors import InvalidRequest

MIN_MODULE_MM = 0.5
QUIET_ZONE = 4
"""Modules of white around the code, on each side: what the standard asks for."""

_ASCII = re.compile(r"[\x21-\x7e]{1,512}")
_LEVELS = ("H", "Q", "M", "L")
_COMFORTABLE_MODULE_MM = 0.8
"""Error correction is raised only as long as a module stays this wide: a coarse code scans better than a safe one."""


class QrTooSmall(Exception):
    """The box is too small for the code; *needed_mm* is the smallest side that would do."""

    def __init__(self, *, side_mm: float, needed_mm: float) -> None:
        super().__init__(f"{side_mm:g} mm is too small for the code; it needs {needed_mm:g} mm")
        self.side_mm = side_mm
        self.needed_mm = needed_mm


@attrs.frozen(kw_only=True)
class QrCode:
    """A code: *size* modules on a side without the quiet zone, and the path of its dark modules.

    The path is in modules, y downward from the top of the code.
    """

    size: int
    path: str = attrs.field(repr=False)
    module_mm: float

    @property
    def total(self) -> int:
        """Modules on a side with the quiet zone on both sides."""
        return self.size + 2 * QUIET_ZONE


def qr_code(token: str, *, side_mm: float) -> QrCode:
    """Return the code of *token* for a white square of *side_mm*, quiet zone included.

    Raises:
        InvalidRequest: the token is not printable ASCII without spaces.
        QrTooSmall: even with the lowest error level a module would be narrower than 0.5 mm.
    """
    if not _ASCII.fullmatch(token):
        raise InvalidRequest("position.token: must be 1 to 512 printable ASCII characters without spaces")
    best = _made(token, "L")
    if side_mm / (len(best.matrix) + 2 * QUIET_ZONE) < MIN_MODULE_MM:
        needed = MIN_MODULE_MM * (len(best.matrix) + 2 * QUIET_ZONE)
        raise QrTooSmall(side_mm=side_mm, needed_mm=needed)
    for level in _LEVELS[:-1]:
        code = _made(token, level)
        module = side_mm / (len(code.matrix) + 2 * QUIET_ZONE)
        if module >= _COMFORTABLE_MODULE_MM or len(code.matrix) == len(best.matrix):
            best = code
            break
    size = len(best.matrix)
    return QrCode(size=size, path=_path(best), module_mm=side_mm / (size + 2 * QUIET_ZONE))


def _made(token: str, level: str) -> segno.QRCode:
    return segno.make_qr(token, error=level, boost_error=False)


def _path(code: segno.QRCode) -> str:
    """Return rectangles over all runs of dark modules; one path, filled at once, has no seams."""
    return "\n".join(
        f"{run.start()} {y} {run.end() - run.start()} 1 re"
        for y, row in enumerate(code.matrix)
        for run in re.finditer(b"\x01+", bytes(row))
    )
