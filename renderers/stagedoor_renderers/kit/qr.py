"""QR codes that scan: sized in mm, pure black on white, with their quiet zone.

A code holds an opaque token in ASCII and nothing else. Its error level is the
highest that keeps a module at least half a millimetre wide in the box that the
layout gives it.
"""

import re
from collections.abc import Iterator, Sequence

import attrs
import segno

from stagedoor.errors import InvalidRequest
from stagedoor_renderers.kit.memory import Remembered

MIN_MODULE_MM = 0.5
QUIET_ZONE = 4
"""Modules of white around the code, on each side: what the standard asks for."""

MAX_TOKEN = 512

_ASCII = re.compile(r"[\x21-\x7e]+")
_NUMERIC = re.compile(r"[0-9]+")
_ALPHANUMERIC = re.compile(r"[0-9A-Z$%*+\-./:]+")
_LEVELS = ("H", "Q", "M", "L")
_COMFORTABLE_MODULE_MM = 0.8
"""Error correction is raised only as long as a module stays this wide: a coarse code scans better than a safe one."""

_MASKS = 8


class QrTooSmall(Exception):
    """The box is too small for the code; *needed_mm* is the smallest side that would do."""

    def __init__(self, *, side_mm: float, needed_mm: float) -> None:
        super().__init__(f"{side_mm:g} mm is too small for the code; it needs {needed_mm:g} mm")
        self.side_mm = side_mm
        self.needed_mm = needed_mm


@attrs.frozen(kw_only=True)
class QrCode:
    """A code: *size* modules on a side without the quiet zone; each row is ones and zeros, dark is one."""

    size: int
    rows: tuple[str, ...] = attrs.field(repr=False)
    module_mm: float
    level: str

    @property
    def total(self) -> int:
        """Modules on a side with the quiet zone on both sides."""
        return self.size + 2 * QUIET_ZONE

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield the runs of dark modules: column and row of the first one, and how many."""
        for y, row in enumerate(self.rows):
            for run in _RUN.finditer(row):
                yield run.start(), y, run.end() - run.start()

    def path(self) -> str:
        """Return rectangles over all runs of dark modules, in modules, y downward from the top of the code.

        One path, filled at once, has no seams between its parts.
        """
        return "\n".join(f"{x} {y} {width} 1 re" for x, y, width in self.runs())


_RUN = re.compile("1+")


def qr_code(token: str, *, side_mm: float) -> QrCode:
    """Return the code of *token* for a white square of *side_mm*, quiet zone included.

    Raises:
        InvalidRequest: the token is not printable ASCII without spaces.
        QrTooSmall: even with the lowest error level a module would be narrower than 0.5 mm.
    """
    if len(token) > MAX_TOKEN or not _ASCII.fullmatch(token):
        raise InvalidRequest(f"position.token: must be 1 to {MAX_TOKEN} printable ASCII characters without spaces")
    level, version = _chosen(_versions(len(token), _kind(token)), side_mm)
    size = 17 + 4 * version
    rows = _best_rows(token, level, version)
    return QrCode(size=size, rows=rows, module_mm=side_mm / (size + 2 * QUIET_ZONE), level=level)


def needed_mm(token: str) -> float:
    """Return the smallest side, quiet zone included, that a code of *token* needs."""
    smallest = _versions(len(token), _kind(token))["L"]
    return MIN_MODULE_MM * (17 + 4 * smallest + 2 * QUIET_ZONE)


def _chosen(versions: dict[str, int], side_mm: float) -> tuple[str, int]:
    """Return error level and version for the room that there is."""
    smallest = versions["L"]

    def module(version: int) -> float:
        return side_mm / (17 + 4 * version + 2 * QUIET_ZONE)

    if module(smallest) < MIN_MODULE_MM:
        raise QrTooSmall(side_mm=side_mm, needed_mm=MIN_MODULE_MM * (17 + 4 * smallest + 2 * QUIET_ZONE))
    for level in _LEVELS:
        # A higher level that needs no larger code costs nothing.
        if versions[level] == smallest or module(versions[level]) >= _COMFORTABLE_MODULE_MM:
            return level, versions[level]
    return "L", smallest


def _kind(token: str) -> str:
    """Return a character of the densest alphabet that holds all of *token*: digits, capitals, or any."""
    if _NUMERIC.fullmatch(token):
        return "0"
    return "A" if _ALPHANUMERIC.fullmatch(token) else "a"


@Remembered  # a pure function of two small values; the table of what the standard says about lengths
def _versions(length: int, kind: str) -> dict[str, int]:
    """Return the smallest version for *length* characters of an alphabet, by error level."""
    return {level: int(segno.make_qr(kind * length, error=level, boost_error=False).version) for level in _LEVELS}


# -- the mask -----------------------------------------------------------------
#
# Of eight masks the standard wants the one that scores best, and searching for it
# is nine tenths of what an encoder written in Python does. Two codes of one text
# that differ in their mask differ by a pattern that does not depend on the text.
# So the text is encoded once, with mask 0, as one large integer; the other seven
# codes are that integer XOR a pattern; and they are scored with shifts and ANDs
# over all modules at once.


def _plain_code(token: str, level: str, version: int) -> int:
    """Return the code of *token* with mask 0."""
    if _kind(token) == "A" and len(token) <= _LINEAR_LENGTH:
        return _linear(len(token), level, version).code(token)
    return _as_integer(segno.make_qr(token, error=level, version=version, mask=0, boost_error=False).matrix)


# -- encoding without an encoder ----------------------------------------------
#
# All that the standard does to the bits of a text (error correction, interleaving,
# placing) is linear over XOR. So for one length of text, level and version, the
# code is the code of zeros, XOR one pattern for every bit that is one. An encoder
# makes these patterns once; afterwards a token costs a few dozen XORs.

_LINEAR_LENGTH = 64
"""Beyond it the patterns would take longer to make than they save."""

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ $%*+-./:"
_VALUES = {char: value for value, char in enumerate(_ALPHABET)}


@attrs.frozen
class _Linear:
    """The code of a text of zeros, and for each pair of characters what each bit of its value changes."""

    zeros: int
    pairs: tuple[tuple[int, ...], ...] = attrs.field(repr=False)

    def code(self, token: str) -> int:
        code = self.zeros
        for index, patterns in enumerate(self.pairs):
            pair = token[2 * index : 2 * index + 2]
            value = _VALUES[pair] if len(pair) == 1 else 45 * _VALUES[pair[0]] + _VALUES[pair[1]]
            for pattern in patterns:
                if value & 1:
                    code ^= pattern
                value >>= 1
        return code


@Remembered  # a pure function of three small values: one table for each kind of token in use
def _linear(length: int, level: str, version: int) -> _Linear:
    def code(text: str) -> int:
        made = segno.make_qr(text, error=level, version=version, mask=0, mode="alphanumeric", boost_error=False)
        return _as_integer(made.matrix)

    zeros = "0" * length
    changed = [
        [f"{zeros[:start]}{text}{zeros[start + len(text) :]}" for text in _powers(alone=start + 1 == length)]
        for start in range(0, length, 2)
    ]
    nothing = code(zeros)
    return _Linear(nothing, tuple(tuple(nothing ^ code(text) for text in texts) for texts in changed))


def _powers(*, alone: bool) -> list[str]:
    """Return the pairs whose values are the powers of two; or the characters, for the last one of an odd number."""
    if alone:
        return [_ALPHABET[1 << bit] for bit in range(6)]
    return [_ALPHABET[high] + _ALPHABET[low] for high, low in (divmod(1 << bit, 45) for bit in range(11))]


# -- one integer for all modules ----------------------------------------------

_PADDING = 4
"""Light modules after each row of the integer: rows do not touch, and four is as far as any rule looks."""


def _best_rows(token: str, level: str, version: int) -> tuple[str, ...]:
    size = 17 + 4 * version
    plain = _plain_code(token, level, version)
    best = min((plain ^ pattern for pattern in _patterns(level, version)), key=_Scorer(size))
    stride = size + _PADDING
    bits = f"{best:0{size * stride}b}"
    return tuple(bits[start : start + size] for start in range(0, size * stride, stride))


def _as_integer(matrix: Sequence[Sequence[int]]) -> int:
    """Return the modules row by row as bits, the first one the highest."""
    return int("".join("".join(map(str, row)) + "0" * _PADDING for row in matrix), 2)


@Remembered  # a pure function of two small values: eight patterns for each size and level in use
def _patterns(level: str, version: int) -> tuple[int, ...]:
    """Return what to XOR onto a code with mask 0 to get the code with each mask."""
    codes = [
        _as_integer(segno.make_qr("A", error=level, version=version, mask=mask, boost_error=False).matrix)
        for mask in range(_MASKS)
    ]
    return tuple(codes[0] ^ code for code in codes)


@Remembered  # as above
def _everywhere(size: int) -> int:
    """Return a code of *size* of which every module is dark."""
    return int(("1" * size + "0" * _PADDING) * size, 2)


class _Scorer:
    """Scores a code as the standard does: the lower, the better to scan."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._stride = size + _PADDING
        self._all = _everywhere(size)

    def __call__(self, dark: int) -> int:
        light = self._all & ~dark
        score = self._blocks(dark) + self._blocks(light) + self._balance(dark)
        for step in (1, self._stride):
            score += self._runs(dark, step) + self._runs(light, step) + self._finders(dark, light, step)
        return score

    @staticmethod
    def _runs(modules: int, step: int) -> int:
        """Score runs of five or more: three, and one for each module beyond the fifth."""
        two = modules & modules >> step
        four = two & two >> 2 * step
        five = four & modules >> 4 * step
        ends = five & ~(five >> step)
        # A run of n holds n - 4 windows of five, and scores n - 2.
        return five.bit_count() + 2 * ends.bit_count()

    def _blocks(self, modules: int) -> int:
        """Score blocks of two by two: three each."""
        pairs = modules & modules >> 1
        return 3 * (pairs & pairs >> self._stride).bit_count()

    @staticmethod
    def _finders(dark: int, light: int, step: int) -> int:
        """Score what looks like a finder pattern (1:1:3:1:1 with four light modules beside it): forty each.

        Beyond the edge all is light, as the quiet zone is.
        """
        ends = dark & dark >> 6 * step & light >> step & light >> 5 * step
        core = ends & dark >> 2 * step & dark >> 3 * step & dark >> 4 * step
        before = dark >> 7 * step | dark >> 8 * step | dark >> 9 * step | dark >> 10 * step
        after = dark << step | dark << 2 * step | dark << 3 * step | dark << 4 * step
        return 40 * (core & ~(before & after)).bit_count()

    def _balance(self, dark: int) -> int:
        """Score how far the share of dark modules is from half: ten for every full five per cent."""
        total = self._size * self._size
        return 10 * (abs(20 * dark.bit_count() - 10 * total) // total)
