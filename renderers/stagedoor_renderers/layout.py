"""Layouts are data: TOML or JSON files of typed boxes in millimetres, checked when they are read.

Places are measured from the top left corner of the page. A box that shows text
holds a template: words, and fields in braces (`{holder}`, `{label.row}`). A
box whose fields are all empty is not drawn, and neither is one that `needs` a
field that is empty, so that labels go with their values.

Everything that can be wrong with a layout is found here, and named with the file
and the box, not when the first ticket is drawn.
"""

# ruff: noqa: RUF009, PLR2004 - attributes are declared by a call (see _value), and limits stand where they hold

import json
import math
import re
import tomllib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, Literal

import attrs

from stagedoor.errors import ConfigurationError
from stagedoor_renderers.fields import FIELDS
from stagedoor_renderers.kit.images import Image, ImageError, read_image
from stagedoor_renderers.kit.pen import Color
from stagedoor_renderers.values import word_names

Align = Literal["start", "end", "left", "center", "right", "auto"]
Valign = Literal["top", "middle", "bottom"]

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_COLOR = re.compile(r"#[0-9a-f]{6}")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_MAX_BOXES = 200
_MAX_MM = 1000.0


class _Wrong(Exception):
    """A value that does not fit; becomes one line of the error."""


# -- templates ----------------------------------------------------------------


@attrs.frozen
class Template:
    """Words and fields: `literals` has one element more than `fields`."""

    literals: tuple[str, ...]
    fields: tuple[str, ...]

    def fill(self, content: Mapping[str, str]) -> str:
        """Return the text, or nothing if it has fields and all of them are empty."""
        if not self.fields:
            return self.literals[0]
        values = [content.get(name, "") for name in self.fields]
        # A label alone is a text of its own; beside an empty field it says nothing.
        telling = [value for name, value in zip(self.fields, values, strict=True) if not name.startswith("label.")]
        if telling and not any(telling):
            return ""
        parts = [self.literals[0]]
        for value, literal in zip(values, self.literals[1:], strict=True):
            parts += (value, literal)
        return "".join(parts)


def _template(value: Any) -> Template:
    if not isinstance(value, str) or len(value) > 1000:
        raise _Wrong(f"must be text of up to 1000 characters, found {value!r}")
    parts = _PLACEHOLDER.split(value)
    for name in parts[1::2]:
        _field(name)
    for literal in parts[::2]:
        if "{" in literal or "}" in literal:
            raise _Wrong(f"has a brace without its partner in {value!r}")
    return Template(tuple(parts[::2]), tuple(parts[1::2]))


# -- readers of single values -------------------------------------------------


def _number(low: float, high: float) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise _Wrong(f"must be a number from {low:g} to {high:g}, found {value!r}")
        if not low <= value <= high:
            raise _Wrong(f"must be from {low:g} to {high:g}, found {value:g}")
        return float(value)

    return read


def _whole(low: int, high: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise _Wrong(f"must be a whole number from {low} to {high}, found {value!r}")
        return value

    return read


def _choice(*allowed: Any) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if isinstance(value, bool) or value not in allowed:
            raise _Wrong(f"must be one of {', '.join(map(str, allowed))}, found {value!r}")
        return value

    return read


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Wrong(f"must be true or false, found {value!r}")
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise _Wrong(f"must be lower-case letters, digits and dashes, found {value!r}")
    return value


def _field(value: Any) -> str:
    if isinstance(value, str) and value.startswith("label."):
        if value.removeprefix("label.") not in word_names():
            raise _Wrong(f"names a word that does not exist: {value!r}; there are {', '.join(word_names())}")
    elif not isinstance(value, str) or value not in FIELDS:
        raise _Wrong(f"names a field that does not exist: {value!r}; there are {', '.join(sorted(FIELDS))}")
    return value


def _fields(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (_field(value),)
    if not isinstance(value, list):
        raise _Wrong(f"must be the name of a field or a list of names, found {value!r}")
    return tuple(_field(item) for item in value)


def _numbers(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) > 8:
        raise _Wrong(f"must be a list of up to 8 numbers, found {value!r}")
    return tuple(_number(0, _MAX_MM)(item) for item in value)


def _color(value: Any) -> str:
    """Read a colour or the name of one; names are looked up when all of the file is known."""
    if not isinstance(value, str) or not (_COLOR.fullmatch(value) or _NAME.fullmatch(value)):
        raise _Wrong(f"must be #rrggbb in lower case or a name from [colors], found {value!r}")
    return value


def _value(read: Callable[[Any], Any], *, default: Any = attrs.NOTHING) -> Any:
    """Declare an attribute that knows how it is read from a file."""
    return attrs.field(metadata={"read": read}, default=default)


_mm = _number(0, _MAX_MM)
_points = _number(1, 200)
_align = _choice("start", "end", "left", "center", "right", "auto")


# -- boxes --------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Box:
    """What every box may say: a name for messages, what it depends on, how it is turned."""

    name: str = _value(_name, default="")
    needs: tuple[str, ...] = _value(_fields, default=())
    unless: tuple[str, ...] = _value(_fields, default=())


@attrs.frozen(kw_only=True)
class Placed(Box):
    """A box with a place; *rotate* turns it clockwise about the middle of the place that it is given."""

    x: float = _value(_mm)
    y: float = _value(_mm)
    w: float = _value(_mm)
    h: float = _value(_mm)
    rotate: int = _value(_choice(0, 90, 180, 270), default=0)


@attrs.frozen(kw_only=True)
class Text(Placed):
    """A few lines of text that shrink to fit, then break, then end in an ellipsis.

    *mirror* puts the box as far from the other side of the page where the language is
    read from the right, for boxes that share a line.
    """

    text: Template = _value(_template)
    font: Literal["regular", "bold"] = _value(_choice("regular", "bold"), default="regular")
    size: float = _value(_points)
    min_size: float = _value(_points, default=5.0)
    lines: int = _value(_whole(1, 20), default=1)
    leading: float = _value(_number(0.8, 3), default=1.2)
    align: Align = _value(_align, default="start")
    valign: Valign = _value(_choice("top", "middle", "bottom"), default="top")
    color: str = _value(_color, default="ink")
    tracking: float = _value(_number(-50, 500), default=0.0)
    upper: bool = _value(_flag, default=False)
    balanced: bool = _value(_flag, default=False)
    mirror: bool = _value(_flag, default=False)


@attrs.frozen(kw_only=True)
class Paragraph(Placed):
    """Running text with its line breaks; what does not fit goes to further pages or ends in an ellipsis."""

    text: Template = _value(_template)
    font: Literal["regular", "bold"] = _value(_choice("regular", "bold"), default="regular")
    size: float = _value(_points)
    min_size: float = _value(_points, default=5.0)
    leading: float = _value(_number(0.8, 3), default=1.35)
    align: Align = _value(_align, default="auto")
    color: str = _value(_color, default="ink")
    columns: int = _value(_whole(1, 4), default=1)
    column_gap: float = _value(_mm, default=5.0)
    overflow: Literal["page", "ellipsis"] = _value(_choice("page", "ellipsis"), default="ellipsis")
    title: Template = _value(_template, default=Template(("",), ()))


@attrs.frozen(kw_only=True)
class Fact:
    """A label above a value; both go if the value is empty. *share* is its part of the row's width."""

    label: Template = _value(_template)
    text: Template = _value(_template)
    share: float = _value(_number(0.1, 20), default=1.0)


@attrs.frozen(kw_only=True)
class Facts(Placed):
    """A row of facts, set from where its language begins; those that are empty leave no gap."""

    items: tuple[Fact, ...] = _value(lambda value: _tables(value, Fact))
    gap: float = _value(_mm, default=6.0)
    label_size: float = _value(_points, default=6.0)
    label_color: str = _value(_color, default="muted")
    label_tracking: float = _value(_number(-50, 500), default=80.0)
    font: Literal["regular", "bold"] = _value(_choice("regular", "bold"), default="bold")
    size: float = _value(_points)
    min_size: float = _value(_points, default=6.0)
    lines: int = _value(_whole(1, 4), default=1)
    leading: float = _value(_number(0.8, 3), default=1.2)
    color: str = _value(_color, default="ink")
    spacing: float = _value(_number(0, 50), default=2.0)
    upper: bool = _value(_flag, default=True)
    fixed: bool = _value(_flag, default=False)


@attrs.frozen(kw_only=True)
class Entry:
    """One text of a stack: as `Text`, without a place of its own; *gap* is what is above it, in mm."""

    text: Template = _value(_template)
    font: Literal["regular", "bold"] = _value(_choice("regular", "bold"), default="regular")
    size: float = _value(_points)
    min_size: float = _value(_points, default=5.0)
    lines: int = _value(_whole(1, 20), default=1)
    leading: float = _value(_number(0.8, 3), default=1.2)
    color: str = _value(_color, default="ink")
    tracking: float = _value(_number(-50, 500), default=0.0)
    upper: bool = _value(_flag, default=False)
    balanced: bool = _value(_flag, default=False)
    gap: float = _value(_mm, default=3.0)


@attrs.frozen(kw_only=True)
class Stack(Placed):
    """Texts one below the other; each takes the room that it needs, and an empty one takes none."""

    items: tuple[Entry, ...] = _value(lambda value: _tables(value, Entry))
    align: Align = _value(_align, default="start")


@attrs.frozen(kw_only=True)
class Addons(Placed):
    """The add-ons of the position, a line for each under a label; those that find no room are counted at the end.

    Without an add-on, nothing is drawn. Lines that are too long shrink, all of them together.
    """

    label: Template = _value(_template, default=Template(("", ""), ("label.addons",)))
    label_size: float = _value(_points, default=6.0)
    label_color: str = _value(_color, default="muted")
    label_tracking: float = _value(_number(-50, 500), default=80.0)
    font: Literal["regular", "bold"] = _value(_choice("regular", "bold"), default="regular")
    size: float = _value(_points)
    min_size: float = _value(_points, default=5.0)
    leading: float = _value(_number(0.8, 3), default=1.2)
    align: Align = _value(_align, default="start")
    color: str = _value(_color, default="ink")
    spacing: float = _value(_number(0, 50), default=2.0)
    upper: bool = _value(_flag, default=True)


@attrs.frozen(kw_only=True)
class Qr(Box):
    """The code of the token in a white square, its quiet zone included."""

    x: float = _value(_mm)
    y: float = _value(_mm)
    side: float = _value(_mm)


@attrs.frozen(kw_only=True)
class Rect(Placed):
    """A filled rectangle."""

    color: str = _value(_color)
    radius: float = _value(_mm, default=0.0)


@attrs.frozen(kw_only=True)
class Circle(Box):
    """A filled circle; *x* and *y* are its middle."""

    x: float = _value(_mm)
    y: float = _value(_mm)
    r: float = _value(_mm)
    color: str = _value(_color)


@attrs.frozen(kw_only=True)
class Rule(Box):
    """A straight line; *dash* holds lengths of dashes and gaps in mm, *width* is in points."""

    x1: float = _value(_mm)
    y1: float = _value(_mm)
    x2: float = _value(_mm)
    y2: float = _value(_mm)
    color: str = _value(_color, default="ink")
    width: float = _value(_number(0.05, 50), default=0.5)
    dash: tuple[float, ...] = _value(_numbers, default=())
    round: bool = _value(_flag, default=False)


@attrs.frozen(kw_only=True)
class Picture(Placed):
    """An image of the organiser, by the name of its asset, scaled to fit and never stretched."""

    image: str = _value(_name)
    fit: Literal["contain", "cover"] = _value(_choice("contain", "cover"), default="contain")
    align: Literal["left", "center", "right"] = _value(_choice("left", "center", "right"), default="center")


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

    width: float = _value(_number(20, _MAX_MM))
    height: float = _value(_number(20, _MAX_MM))
    margin: float = _value(_mm, default=12.0)
    folds: tuple[float, ...] = _value(_numbers, default=())
    vertical_folds: tuple[float, ...] = _value(_numbers, default=())


@attrs.frozen(kw_only=True, eq=False)
class Layout:
    """One layout, checked; *colors* has every colour that a box names, by name and by ``#rrggbb``."""

    name: str
    file: str
    page: PageSize
    boxes: tuple[Box, ...]
    colors: Mapping[str, Color] = attrs.field(repr=False)
    images: Mapping[str, Image] = attrs.field(factory=dict, repr=False)


# -- reading ------------------------------------------------------------------


def _no_image(name: str) -> tuple[str, bytes]:
    raise FileNotFoundError(name)


def read_layout(text: str, *, name: str, file: str, image: Callable[[str], tuple[str, bytes]] = _no_image) -> Layout:
    """Return the layout in *text*, the content of a TOML file, or of a JSON file of the same shape.

    Args:
        text: the file's content.
        name: what the layout is called.
        file: its name, for messages; one that ends in ``.json`` holds JSON.
        image: returns file name and content of the picture of a name, or raises
            `FileNotFoundError`.

    Raises:
        ConfigurationError: everything that is wrong, each with the file and the box.
    """
    data = _decoded(text, file)
    problems: list[str] = []
    known = {"page", "colors", "box"}
    problems += [
        f"layout {file}: unknown key {key}; there are {', '.join(sorted(known))}" for key in data.keys() - known
    ]
    page = _page(data.get("page"), file, problems)
    colors = _colors(data.get("colors", {}), file, problems)
    boxes = _boxes(data.get("box", []), file, problems)
    if page is not None:
        problems += _places(page, boxes, file)
    problems += _unknown_colors(boxes, colors, file)
    images = _images(boxes, file, image, problems)
    if problems or page is None:
        raise ConfigurationError(problems)
    used = {color for box in boxes for color in _colors_of(box)}
    return Layout(
        name=name,
        file=file,
        page=page,
        boxes=tuple(boxes),
        images=images,
        colors={name: Color.of(colors.get(name, name)) for name in used | colors.keys()},
    )


def _unknown_colors(boxes: Sequence[Box], colors: Container[str], file: str) -> Iterator[str]:
    for index, box in enumerate(boxes, start=1):
        for color in _colors_of(box):
            if not color.startswith("#") and color not in colors:
                yield f"layout {file}: {_called(index, box)}: color {color!r} is not in [colors]"


def _decoded(text: str, file: str) -> Mapping[str, Any]:
    """Return the tables of a file, whichever of the two forms it has."""
    try:
        if not file.endswith(".json"):
            return tomllib.loads(text)
        data = json.loads(text, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"layout {file} is no {'JSON' if file.endswith('.json') else 'TOML'}: {error}"
        ) from error
    if not isinstance(data, dict):
        raise ConfigurationError(f"layout {file} must be one object with page, colors and box")
    return data


def _without_repetition(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that is there twice, as TOML does: JSON's reader would take the last one and say nothing."""
    data = dict(pairs)
    if len(data) < len(pairs):
        twice = next(name for name, _ in pairs if sum(name == other for other, _ in pairs) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return data


def _page(data: Any, file: str, problems: list[str]) -> PageSize | None:
    if not isinstance(data, dict):
        problems.append(f"layout {file}: [page] with width and height in mm is missing")
        return None
    try:
        return _structured(data, PageSize)
    except _Wrong as wrong:
        problems.append(f"layout {file}: [page] {wrong}")
        return None


def _colors(data: Any, file: str, problems: list[str]) -> Mapping[str, str]:
    colors = {"ink": "#000000", "muted": "#555555", "white": "#ffffff"}
    if not isinstance(data, dict):
        problems.append(f"layout {file}: [colors] must be a table of names and #rrggbb")
        return colors
    for name, value in data.items():
        if not isinstance(value, str) or not _COLOR.fullmatch(value):
            problems.append(f"layout {file}: [colors] {name} must be #rrggbb in lower case, found {value!r}")
        else:
            colors[name] = value
    return colors


def _boxes(data: Any, file: str, problems: list[str]) -> list[Box]:
    if not isinstance(data, list) or not 1 <= len(data) <= _MAX_BOXES:
        problems.append(f"layout {file}: there must be 1 to {_MAX_BOXES} tables [[box]]")
        return []
    boxes: list[Box] = []
    for index, table in enumerate(data, start=1):
        kind = table.get("type") if isinstance(table, dict) else None
        cls = BOX_TYPES.get(kind) if isinstance(kind, str) else None
        called = f"box {index}" + (f" ({table['name']})" if isinstance(table, dict) and table.get("name") else "")
        if cls is None:
            problems.append(f"layout {file}: {called}: type must be one of {', '.join(BOX_TYPES)}, found {kind!r}")
            continue
        try:
            boxes.append(_structured({key: value for key, value in table.items() if key != "type"}, cls))
        except _Wrong as wrong:
            problems.append(f"layout {file}: {called}: {wrong}")
    return boxes


def _structured[T](data: Mapping[str, Any], cls: type[T]) -> T:
    """Build *cls* from a table; every attribute knows how it is read."""
    known = {field.name: field for field in attrs.fields(cls)}  # type: ignore[arg-type] # only attrs classes come here
    unknown = sorted(data.keys() - known.keys())
    if unknown:
        raise _Wrong(f"unknown key {', '.join(unknown)}; there are {', '.join(known)}")
    values: dict[str, Any] = {}
    for name, field in known.items():
        if name not in data:
            if field.default is attrs.NOTHING:
                raise _Wrong(f"{name} is missing")
            continue
        try:
            values[name] = field.metadata["read"](data[name])
        except _Wrong as wrong:
            raise _Wrong(f"{name} {wrong}") from None
    return cls(**values)


def _tables[T](value: Any, cls: type[T]) -> tuple[T, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= 20 or not all(isinstance(item, dict) for item in value):
        raise _Wrong(f"must be a list of 1 to 20 tables, found {value!r}")
    return tuple(_structured(item, cls) for item in value)


def _images(
    boxes: Sequence[Box], file: str, find: Callable[[str], tuple[str, bytes]], problems: list[str]
) -> Mapping[str, Image]:
    """Load every picture once, as large as the largest box that shows it."""
    images: dict[str, Image] = {}
    pictures = [(index, box) for index, box in enumerate(boxes, start=1) if isinstance(box, Picture)]
    for index, box in pictures:
        if box.image in images:
            continue
        sizes = [(other.w, other.h) for _, other in pictures if other.image == box.image]
        try:
            found, data = find(box.image)
            # A cropped or turned picture needs the longer side of its box both ways.
            side = max(max(size) for size in sizes)
            images[box.image] = read_image(data, found, width_mm=side, height_mm=side)
        except FileNotFoundError:
            problems.append(
                f"layout {file}: {_called(index, box)}: there is no image {box.image} beside it, "
                "as .png, .jpg, .jpeg or .webp"
            )
        except ImageError as error:
            problems.append(f"layout {file}: {_called(index, box)}: {error}")
    return images


# -- what only the whole file can tell ----------------------------------------


def _called(index: int, box: Box) -> str:
    return f"box {index}" + (f" ({box.name})" if box.name else "")


def _colors_of(box: Box) -> Sequence[str]:
    own = [value for name in ("color", "label_color") if isinstance(value := getattr(box, name, None), str)]
    return own + ([item.color for item in box.items] if isinstance(box, Stack) else [])


def _places(page: PageSize, boxes: Sequence[Box], file: str) -> list[str]:
    """Find what lies outside the page, and codes across a fold."""
    problems: list[str] = []
    for index, box in enumerate(boxes, start=1):
        called = _called(index, box)
        if isinstance(box, Placed) and (box.x + box.w > page.width + 0.01 or box.y + box.h > page.height + 0.01):
            problems.append(
                f"layout {file}: {called} ends at {box.x + box.w:g} x {box.y + box.h:g} mm, "
                f"outside the page of {page.width:g} x {page.height:g} mm"
            )
        if isinstance(box, Qr):
            problems += [f"layout {file}: {called} {wrong}" for wrong in _qr_problems(page, box)]
    return problems


def _qr_problems(page: PageSize, box: Qr) -> list[str]:
    problems = []
    if box.x + box.side > page.width or box.y + box.side > page.height:
        problems.append(f"ends at {box.x + box.side:g} x {box.y + box.side:g} mm, outside the page")
    problems += [
        f"lies across the fold at {fold:g} mm: a crease through a code spoils it"
        for folds, start in ((page.folds, box.y), (page.vertical_folds, box.x))
        for fold in folds
        if start < fold < start + box.side
    ]
    return problems
