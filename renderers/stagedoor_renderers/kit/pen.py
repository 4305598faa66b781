"""Colours and shapes as PDF operators; pure text, so that what never changes is written once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs

_CIRCLE = 0.5522847498
"""How far a Bézier's handles reach to make a quarter of a circle."""


def number(value: float) -> str:
    """Write a number as PDF wants it: no exponent, no needless digits, the same everywhere."""
    text = f"{value:.3f}".rstrip("0").rstrip(".")
    return "0" if text in {"-0", ""} else text


@attrs.frozen
class Color:
    """A colour on the screen: red, green, blue from 0 to 1."""

    red: float
    green: float
    blue: float
    numbers: str = attrs.field(init=False, repr=False, eq=False)

    @numbers.default
    def _written(self) -> str:
        return f"{number(self.red)} {number(self.green)} {number(self.blue)}"

    @classmethod
    def of(cls, text: str) -> "Color":
        """Return the colour of ``#rrggbb``."""
        red, green, blue = (int(text[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return cls(red, green, blue)


BLACK = Color(0.0, 0.0, 0.0)
WHITE = Color(1.0, 1.0, 1.0)


class Pen:
    """Writes operators one after the other and remembers the colour that it fills with.

    Coordinates are in points from the bottom left corner of the page.
    """

    def __init__(self) -> None:
        self._written: list[str] = []
        self._fill: Color | None = None

    @property
    def operators(self) -> str:
        """All that was written."""
        return "\n".join(self._written)

    def draw(self, operators: str) -> None:
        """Add operators as they are; they must leave the graphics state as it was."""
        self._written.append(operators)

    def fill_color(self, color: Color) -> None:
        """Fill what follows with *color*."""
        if color is not self._fill:
            self._written.append(f"{color.numbers} rg")
            self._fill = color

    @contextmanager
    def saved(self) -> Iterator[None]:
        """Restore the graphics state afterwards."""
        fill = self._fill
        self._written.append("q")
        yield
        self._written.append("Q")
        self._fill = fill

    def rect(self, x: float, y: float, width: float, height: float, *, color: Color, radius: float = 0.0) -> None:
        """Fill a rectangle, its corners rounded by *radius*."""
        self.fill_color(color)
        if radius:
            self._written.append(_rounded(x, y, width, height, radius) + " f")
        else:
            self._written.append(f"{number(x)} {number(y)} {number(width)} {number(height)} re f")

    def circle(self, x: float, y: float, radius: float, *, color: Color) -> None:
        """Fill a circle round (*x*, *y*)."""
        self.rect(x - radius, y - radius, 2 * radius, 2 * radius, color=color, radius=radius)

    def line(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        *,
        color: Color,
        width: float,
        dash: Sequence[float] = (),
        round_caps: bool = False,
    ) -> None:
        """Draw a straight line, dashed by *dash* (lengths of dashes and gaps, in points)."""
        style = f"{number(width)} w {color.numbers} RG"
        if dash:
            style += f" [{' '.join(map(number, dash))}] 0 d"
        if round_caps:
            style += " 1 J"
        with self.saved():
            self._written.append(
                f"{style} {number(start[0])} {number(start[1])} m {number(end[0])} {number(end[1])} l S"
            )


def _rounded(x: float, y: float, width: float, height: float, radius: float) -> str:
    """Return the path of a rectangle with round corners."""
    r, k = radius, radius * (1 - _CIRCLE)
    right, top = x + width, y + height

    def points(*values: float) -> str:
        return " ".join(map(number, values))

    return (
        f"{points(x + r, y)} m {points(right - r, y)} l "
        f"{points(right - k, y, right, y + k, right, y + r)} c {points(right, top - r)} l "
        f"{points(right, top - k, right - k, top, right - r, top)} c {points(x + r, top)} l "
        f"{points(x + k, top, x, top - k, x, top - r)} c {points(x, y + r)} l "
        f"{points(x, y + k, x + k, y, x + r, y)} c h"
    )
