"""Where the boxes of a layout lie: all of them on the page, and nothing where a code does not scan.

What is wrong is said by the number of the box. A place that could not be read is not
a number, and no comparison with it is true: such a box is where it ought to be.
"""

import math
from collections.abc import Iterator, Sequence

import attrs

from stagedoor_renderers.boxes import Box, Circle, PageSize, Placed, Qr, Rule, Text

_ROUNDING_MM = 0.01
"""Boxes that overlap by less only touch."""

_MM_PER_POINT = 25.4 / 72

type Numbered = tuple[int, Box]
"""A box with its number in the file."""


@attrs.frozen
class _Area:
    """A rectangle on the page, in mm from its top left corner."""

    left: float
    top: float
    right: float
    bottom: float

    def grown(self, by: float) -> "_Area":
        return _Area(self.left - by, self.top - by, self.right + by, self.bottom + by)


def called(number: int, name: str) -> str:
    """Return what messages call a box."""
    return f"box {number} ({name})" if name else f"box {number}"


def misplaced(page: PageSize, boxes: Sequence[Numbered]) -> Iterator[tuple[int, str]]:
    """Yield what leaves the page, which codes lie across a fold, and what is drawn over a code."""
    for number, box in boxes:
        for problem in (*_off(page, box), *_folded(page, box)):
            yield number, problem
    yield from _covering(page, boxes)


# -- on the page --------------------------------------------------------------


def _off(page: PageSize, box: Box) -> Iterator[str]:
    outside = f"outside the page of {_mm(page.width)} x {_mm(page.height)} mm"

    def is_outside(x: float, y: float) -> bool:
        return x > page.width + _ROUNDING_MM or y > page.height + _ROUNDING_MM

    match box:
        case Circle():
            # A notch at the edge is half a circle: the middle counts.
            if is_outside(box.x, box.y):
                yield f"has its middle at {_mm(box.x)} x {_mm(box.y)} mm, {outside}"
            if 2 * box.r > page.width + _ROUNDING_MM and 2 * box.r > page.height + _ROUNDING_MM:
                yield f"is {_mm(2 * box.r)} mm across, more than the page of {_mm(page.width)} x {_mm(page.height)} mm"
        case Rule():
            for x, y in ((box.x1, box.y1), (box.x2, box.y2)):
                if is_outside(x, y):
                    yield f"has an end at {_mm(x)} x {_mm(y)} mm, {outside}"
        case Placed() | Qr():
            area = _area(box)
            if is_outside(area.right, area.bottom):
                yield f"ends at {_mm(area.right)} x {_mm(area.bottom)} mm, {outside}"


def _area(box: Placed | Qr) -> _Area:
    """Return the place of a box; a turn leaves it as it is."""
    wide, high = (box.side, box.side) if isinstance(box, Qr) else (box.w, box.h)
    return _Area(box.x, box.y, box.x + wide, box.y + high)


def _mm(length: float) -> str:
    return "?" if math.isnan(length) else f"{length:g}"


# -- codes --------------------------------------------------------------------


def _folded(page: PageSize, box: Box) -> Iterator[str]:
    if isinstance(box, Qr):
        for folds, start in ((page.folds, box.y), (page.vertical_folds, box.x)):
            for fold in folds:
                if start < fold < start + box.side:
                    yield f"lies across the fold at {fold:g} mm: a crease through a code spoils it"


def _covering(page: PageSize, boxes: Sequence[Numbered]) -> Iterator[tuple[int, str]]:
    """Yield the boxes that are drawn later than a code, and where it lies."""
    codes: list[tuple[int, Qr]] = []
    for number, box in boxes:
        for other, code in codes:
            if _is_over(page, box, _area(code).grown(-_ROUNDING_MM)) and not _is_instead(box, code):
                yield number, f"lies over the code of {called(other, code.name)}; put it before that box, or elsewhere"
        if isinstance(box, Qr):
            codes.append((number, box))


def _is_instead(box: Box, code: Qr) -> bool:
    """Return whether the two are never on one ticket."""
    return bool(set(box.needs) & set(code.unless) or set(box.unless) & set(code.needs))


def _is_over(page: PageSize, box: Box, area: _Area) -> bool:
    """Return whether *box* has anything of *area*."""
    match box:
        case Circle():
            nearest = max(area.left, min(box.x, area.right)), max(area.top, min(box.y, area.bottom))
            return math.dist((box.x, box.y), nearest) < box.r
        case Rule():
            return _goes_through(box, area.grown(box.width * _MM_PER_POINT / 2))
        case Placed() | Qr():
            own = _area(box)
            places = [own]
            if isinstance(box, Text) and box.mirror:
                places.append(attrs.evolve(own, left=page.width - own.right, right=page.width - own.left))
            return any(_overlap(place, area) for place in places)
    return False


def _overlap(one: _Area, other: _Area) -> bool:
    return one.left < other.right and other.left < one.right and one.top < other.bottom and other.top < one.bottom


def _goes_through(line: Rule, area: _Area) -> bool:
    """Return whether any part of *line* is inside *area* (after Liang and Barsky)."""
    if math.isnan(sum((line.x1, line.y1, line.x2, line.y2, *attrs.astuple(area)))):
        return False
    # From where to where, as parts of its length, the line is between both pairs of sides.
    first, last = 0.0, 1.0
    for start, end, low, high in ((line.x1, line.x2, area.left, area.right), (line.y1, line.y2, area.top, area.bottom)):
        if start == end:
            if not low < start < high:
                return False
            continue
        near, far = sorted(((low - start) / (end - start), (high - start) / (end - start)))
        first, last = max(first, near), min(last, far)
    return first < last
