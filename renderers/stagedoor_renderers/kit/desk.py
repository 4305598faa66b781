"""The typesetter's desk: sets text in the two weights, and remembers what it has set."""

import math
from collections.abc import Callable

from stagedoor_renderers.kit.faces import Faces, Weight
from stagedoor_renderers.kit.memory import Remembered
from stagedoor_renderers.kit.showing import Shown, show
from stagedoor_renderers.kit.typeset import Block, Line, break_lines, fit

_LONG = 200
"""Characters from which a text counts as long: terms are, and names that nobody has."""

_SHORT_FOR_ONE_LONG = 64
"""So 4,096 short texts and 64 long ones are remembered: terms have at most some 30,000 characters, short texts 200."""


class _Texts[*Ts, T]:
    """Remembers what a pure function made of a weight and a text: many short texts, and few long ones.

    The number of texts alone would be no bound, for one text may be a thousand times another.
    """

    def __init__(self, make: Callable[[Weight, str, *Ts], T], count: int) -> None:
        self._short = Remembered(make, count)
        self._long = Remembered(make, max(4, count // _SHORT_FOR_ONE_LONG))

    def __call__(self, weight: Weight, text: str, *others: *Ts) -> T:
        remembered = self._short if len(text) < _LONG else self._long
        return remembered(weight, text, *others)


class Typesetter:
    """Sets text in the two weights, and remembers what it has set.

    Most of a ticket is the same on every ticket of an event: labels, title, venue,
    terms. All functions here are pure, so remembering changes nothing but the
    time; what is remembered is bounded in number and size, and safe to share between
    threads.

    Args:
        faces: the two weights.
        remembered: how many lines and blocks to remember, of each kind.
    """

    def __init__(self, faces: Faces, *, remembered: int = 4096) -> None:
        self._faces = faces
        self._fit = _Texts(self._fit_now, remembered)
        self._break = _Texts(self._break_now, remembered)
        self._show = _Texts(self._show_now, remembered)

    @property
    def faces(self) -> Faces:
        """The two weights."""
        return self._faces

    def fit(
        self,
        weight: Weight,
        text: str,
        *,
        size: float,
        floor: float,
        width: float,
        max_lines: int = 1,
        height: float = math.inf,
        leading: float = 1.2,
        tracking: float = 0.0,
        balanced: bool = False,
    ) -> Block:
        """Do as the function `fit`."""
        return self._fit(weight, text, size, floor, width, max_lines, height, leading, tracking, balanced)

    def width_of(self, weight: Weight, text: str, size: float, *, tracking: float = 0.0) -> float:
        """Return how wide *text* is on one line, in points."""
        return self.fit(weight, text, size=size, floor=size, width=math.inf, tracking=tracking).lines[0].width

    def break_lines(self, weight: Weight, text: str, size: float, *, width: float) -> tuple[Line, ...]:
        """Do as the function `break_lines`."""
        return self._break(weight, text, size, width)

    def show(self, weight: Weight, line: Line, size: float) -> Shown:
        """Do as the function `show`."""
        return self._show(weight, line.text, line.right_to_left, size)

    def _fit_now(  # noqa: PLR0917 - the cache tells arguments apart by their places
        self,
        weight: Weight,
        text: str,
        size: float,
        floor: float,
        width: float,
        max_lines: int,
        height: float,
        leading: float,
        tracking: float,
        balanced: bool,  # noqa: FBT001 - as above
    ) -> Block:
        return fit(
            self._faces[weight],
            text,
            size=size,
            floor=floor,
            width=width,
            max_lines=max_lines,
            height=height,
            leading=leading,
            tracking=tracking,
            balanced=balanced,
        )

    def _break_now(self, weight: Weight, text: str, size: float, width: float) -> tuple[Line, ...]:
        return tuple(break_lines(self._faces[weight], text, size, width=width))

    def _show_now(self, weight: Weight, text: str, right_to_left: bool, size: float) -> Shown:  # noqa: FBT001 - as above
        return show(self._faces[weight], Line(text=text, width=0.0, right_to_left=right_to_left), size)
