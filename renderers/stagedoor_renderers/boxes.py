"""What a layout is made of: boxes in millimetres on a page.

Places are measured from the top left corner of the page. A box that shows text
holds a template: words, and fields in braces (`{holder}`, `{label.row}`). A
box whose fields are all empty is not drawn, and neither is one that `needs` a
field that is empty, so that labels go with their values.
"""

# ruff: noqa: RUF009 - attributes are declared by a call (see `typed.declared`)

from collections.abc import Mapping
from typing import Literal

import attrs

from stagedoor_renderers import typed
from stagedoor_renderers.kit.images import Image
from stagedoor_renderers.kit.pen import Color
from stagedoor_renderers.typed import Template, declared

Align = Literal["start", "end", "left", "center", "right", "auto"]
Valign = Literal["top", "middle", "bottom"]


@attrs.frozen(kw_only=True)
class Box:
    """What every box may say: a name for messages, what it depends on, how it is turned."""

    name: str = declared(typed.name_of, default="")
    needs: tuple[str, ...] = declared(typed.fields, default=())
    unless: tuple[str, ...] = declared(typed.fields, default=())


@attrs.frozen(kw_only=True)
class Placed(Box):
    """A box with a place; *rotate* turns it clockwise about the middle of the place that it is given."""

    x: float = declared(typed.mm)
    y: float = declared(typed.mm)
    w: float = declared(typed.mm)
    h: float = declared(typed.mm)
    rotate: int = declared(typed.choice(0, 90, 180, 270), default=0)


@attrs.frozen(kw_only=True)
class Text(Placed):
    """A few lines of text that shrink to fit, then break, then end in an ellipsis.

    *mirror* puts the box as far from the other side of the page where the language is
    read from the right, for boxes that share a line.
    """

    text: Template = declared(typed.template)
    font: Literal["regular", "bold"] = declared(typed.choice("regular", "bold"), default="regular")
    size: float = declared(typed.points)
    min_size: float = declared(typed.points, default=5.0)
    lines: int = declared(typed.whole(1, 20), default=1)
    leading: float = declared(typed.number(0.8, 3), default=1.2)
    align: Align = declared(typed.align, default="start")
    valign: Valign = declared(typed.choice("top", "middle", "bottom"), default="top")
    color: str = declared(typed.color, default="ink")
    tracking: float = declared(typed.number(-50, 500), default=0.0)
    upper: bool = declared(typed.flag, default=False)
    balanced: bool = declared(typed.flag, default=False)
    mirror: bool = declared(typed.flag, default=False)


@attrs.frozen(kw_only=True)
class Paragraph(Placed):
    """Running text with its line breaks; what does not fit goes to further pages or ends in an ellipsis."""

    text: Template = declared(typed.template)
    font: Literal["regular", "bold"] = declared(typed.choice("regular", "bold"), default="regular")
    size: float = declared(typed.points)
    min_size: float = declared(typed.points, default=5.0)
    leading: float = declared(typed.number(0.8, 3), default=1.35)
    align: Align = declared(typed.align, default="auto")
    color: str = declared(typed.color, default="ink")
    columns: int = declared(typed.whole(1, 4), default=1)
    column_gap: float = declared(typed.mm, default=5.0)
    overflow: Literal["page", "ellipsis"] = declared(typed.choice("page", "ellipsis"), default="ellipsis")
    title: Template = declared(typed.template, default=Template(("",), ()))


@attrs.frozen(kw_only=True)
class Fact:
    """A label above a value; both go if the value is empty. *share* is its part of the row's width."""

    label: Template = declared(typed.template)
    text: Template = declared(typed.template)
    share: float = declared(typed.number(0.1, 20), default=1.0)


@attrs.frozen(kw_only=True)
class Facts(Placed):
    """A row of facts, set from where its language begins; those that are empty leave no gap."""

    items: tuple[Fact, ...] = declared(lambda value: typed.tables(value, Fact))
    gap: float = declared(typed.mm, default=6.0)
    label_size: float = declared(typed.points, default=6.0)
    label_color: str = declared(typed.color, default="muted")
    label_tracking: float = declared(typed.number(-50, 500), default=80.0)
    font: Literal["regular", "bold"] = declared(typed.choice("regular", "bold"), default="bold")
    size: float = declared(typed.points)
    min_size: float = declared(typed.points, default=6.0)
    lines: int = declared(typed.whole(1, 4), default=1)
    leading: float = declared(typed.number(0.8, 3), default=1.2)
    color: str = declared(typed.color, default="ink")
    spacing: float = declared(typed.number(0, 50), default=2.0)
    upper: bool = declared(typed.flag, default=True)
    fixed: bool = declared(typed.flag, default=False)


@attrs.frozen(kw_only=True)
class Entry:
    """One text of a stack: as `Text`, without a place of its own; *gap* is what is above it, in mm."""

    text: Template = declared(typed.template)
    font: Literal["regular", "bold"] = declared(typed.choice("regular", "bold"), default="regular")
    size: float = declared(typed.points)
    min_size: float = declared(typed.points, default=5.0)
    lines: int = declared(typed.whole(1, 20), default=1)
    leading: float = declared(typed.number(0.8, 3), default=1.2)
    color: str = declared(typed.color, default="ink")
    tracking: float = declared(typed.number(-50, 500), default=0.0)
    upper: bool = declared(typed.flag, default=False)
    balanced: bool = declared(typed.flag, default=False)
    gap: float = declared(typed.mm, default=3.0)


@attrs.frozen(kw_only=True)
class Stack(Placed):
    """Texts one below the other; each takes the room that it needs, and an empty one takes none."""

    items: tuple[Entry, ...] = declared(lambda value: typed.tables(value, Entry))
    align: Align = declared(typed.align, default="start")


@attrs.frozen(kw_only=True)
class Addons(Placed):
    """The add-ons of the position, a line for each under a label; those that find no room are counted at the end.

    Without an add-on, nothing is drawn. Lines that are too long shrink, all of them together.
    """

    label: Template = declared(typed.template, default=Template(("", ""), ("label.addons",)))
    label_size: float = declared(typed.points, default=6.0)
    label_color: str = declared(typed.color, default="muted")
    label_tracking: float = declared(typed.number(-50, 500), default=80.0)
    font: Literal["regular", "bold"] = declared(typed.choice("regular", "bold"), default="regular")
    size: float = declared(typed.points)
    min_size: float = declared(typed.points, default=5.0)
    leading: float = declared(typed.number(0.8, 3), default=1.2)
    align: Align = declared(typed.align, default="start")
    color: str = declared(typed.color, default="ink")
    spacing: float = declared(typed.number(0, 50), default=2.0)
    upper: bool = declared(typed.flag, default=True)


@attrs.frozen(kw_only=True)
class Qr(Box):
    """The code of the token in a white square, its quiet zone included."""

    x: float = declared(typed.mm)
    y: float = declared(typed.mm)
    side: float = declared(typed.mm)


@attrs.frozen(kw_only=True)
class Rect(Placed):
    """A filled rectangle."""

    color: str = declared(typed.color)
    radius: float = declared(typed.mm, default=0.0)


@attrs.frozen(kw_only=True)
class Circle(Box):
    """A filled circle; *x* and *y* are its middle."""

    x: float = declared(typed.mm)
    y: float = declared(typed.mm)
    r: float = declared(typed.mm)
    color: str = declared(typed.color)


@attrs.frozen(kw_only=True)
class Rule(Box):
    """A straight line; *dash* holds lengths of dashes and gaps in mm, *width* is in points."""

    x1: float = declared(typed.mm)
    y1: float = declared(typed.mm)
    x2: float = declared(typed.mm)
    y2: float = declared(typed.mm)
    color: str = declared(typed.color, default="ink")
    width: float = declared(typed.number(0.05, 50), default=0.5)
    dash: tuple[float, ...] = declared(typed.lengths, default=())
    round: bool = declared(typed.flag, default=False)


@attrs.frozen(kw_only=True)
class Picture(Placed):
    """An image of the organiser, by the name of its asset, scaled to fit and never stretched."""

    image: str = declared(typed.name_of)
    fit: Literal["contain", "cover"] = declared(typed.choice("contain", "cover"), default="contain")
    align: Literal["left", "center", "right"] = declared(typed.choice("left", "center", "right"), default="center")


BOX_TYPES: Mapping[str, type[Box]] = {
    "text": Text,
    "paragraph": Paragraph,
    "facts": Facts,
    "stack": Stack,
    "addons": Addons,
    "qr": Qr,
    "rect": Rect,
    "circle": Circle,
    "line": Rule,
    "image": Picture,
}


@attrs.frozen(kw_only=True)
class PageSize:
    """The page; *folds* are the heights at which it is folded, *vertical_folds* the widths: codes keep off them."""

    width: float = declared(typed.number(20, typed.MAX_MM))
    height: float = declared(typed.number(20, typed.MAX_MM))
    margin: float = declared(typed.mm, default=12.0)
    folds: tuple[float, ...] = declared(typed.lengths, default=())
    vertical_folds: tuple[float, ...] = declared(typed.lengths, default=())


@attrs.frozen(kw_only=True, eq=False)
class Layout:
    """One layout, checked; *colors* has every colour that a box names, by name and by ``#rrggbb``."""

    name: str
    file: str
    page: PageSize
    boxes: tuple[Box, ...]
    colors: Mapping[str, Color] = attrs.field(repr=False)
    images: Mapping[str, Image] = attrs.field(factory=dict, repr=False)
