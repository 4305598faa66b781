"""A layout's file: TOML or JSON, checked when it is read.

Everything that can be wrong with a layout is found here, all at once, and named with
the file and the box, not when the first ticket is drawn.
"""

import json
import operator
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from stagedoor.errors import ConfigurationError, InvalidRequest
from stagedoor_renderers import probe, typed
from stagedoor_renderers.boxes import BOX_TYPES, Box, Layout, PageSize, Picture, Qr, Stack
from stagedoor_renderers.kit.images import Image, ImageError, read_image
from stagedoor_renderers.kit.pen import Color
from stagedoor_renderers.kit.qr import QrTooSmall, qr_code
from stagedoor_renderers.places import Numbered, called, misplaced
from stagedoor_renderers.typed import is_color, meant, structured

_MAX_BOXES = 200

_KEYS = ("page", "colors", "box")

_COLORS: Mapping[str, str] = {"ink": "#000000", "muted": "#555555", "white": "#ffffff"}
"""Those that every layout has, also one that gives them no value."""

type Finder = Callable[[str], tuple[str, bytes]]
"""Returns file name and content of the picture of a name, or raises `FileNotFoundError`."""

type _Problem = tuple[int, str]
"""The number of a box, or nought for the rest of the file, and what is wrong with it."""


def _no_image(name: str) -> tuple[str, bytes]:
    raise FileNotFoundError(name)


def read_layout(text: str, *, name: str, file: str, image: Finder = _no_image, code: str = probe.TOKEN) -> Layout:
    """Return the layout in *text*, the content of a TOML file, or of a JSON file of the same shape.

    Args:
        text: the file's content.
        name: what the layout is called.
        file: its name, for messages; one that ends in ``.json`` holds JSON.
        image: finds the pictures that it names.
        code: what a QR code will hold, or something as long.

    Raises:
        ConfigurationError: everything that is wrong, each with the file and the box.
    """
    data = _decoded(text, file)
    page, of_page = _page(data.get("page"))
    colors, of_colors = _colors(data.get("colors", {}))
    boxes, of_boxes = _boxes(data.get("box"))
    images, of_images = _images(boxes, image)
    problems = [
        *((0, f"unknown key {key}; {meant(key, _KEYS)}") for key in data if key not in _KEYS),
        *((0, problem) for problem in (*of_page, *of_colors)),
        *of_boxes,
        *_unknown_colors(boxes, colors),
        *of_images,
        *misplaced(page, boxes),
        *_too_small(boxes, code),
    ]
    if problems:
        raise ConfigurationError(list(_told(problems, data.get("box"), file)))
    used = {color for _, box in boxes for _, color in _colors_of(box)}
    return Layout(
        name=name,
        file=file,
        page=page,
        boxes=tuple(box for _, box in boxes),
        images=images,
        colors={name: Color.of(colors.get(name, name)) for name in used | colors.keys()},
    )


def _told(problems: Sequence[_Problem], tables: Any, file: str) -> Iterator[str]:
    """Yield a line for each problem, with the number and name of its box; those of one box together."""
    for number, problem in sorted(problems, key=operator.itemgetter(0)):
        name = tables[number - 1].get("name") if number and isinstance(tables[number - 1], dict) else ""
        where = f" {called(number, name if typed.is_name(name) else '')}:" if number else ""
        yield f"layout {file}:{where} {problem}"


# -- the file -----------------------------------------------------------------


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


def _page(data: Any) -> tuple[PageSize, list[str]]:
    if not isinstance(data, dict):
        return structured({}, PageSize)[0], ["[page] with width and height in mm is missing"]
    page, problems = structured(data, PageSize)
    return page, [f"[page] {problem}" for problem in problems]


def _colors(data: Any) -> tuple[Mapping[str, str], list[str]]:
    """Return the colours by their names; one that is wrong is among them, so that who names it has named one."""
    if not isinstance(data, dict):
        return _COLORS, ["[colors] must be a table of names and #rrggbb"]
    colors, problems = dict(_COLORS), []
    for name, value in data.items():
        if isinstance(value, str) and is_color(value):
            colors[name] = value
        else:
            colors.setdefault(name, _COLORS["ink"])
            problems.append(f"[colors] {name} must be #rrggbb in lower case, found {value!r}")
    return colors, problems


def _boxes(data: Any) -> tuple[list[Numbered], list[_Problem]]:
    """Return the boxes of a known type, with their numbers in the file."""
    if not isinstance(data, list) or not 1 <= len(data) <= _MAX_BOXES:
        return [], [(0, f"there must be 1 to {_MAX_BOXES} tables [[box]]")]
    boxes: list[Numbered] = []
    problems: list[_Problem] = []
    for number, table in enumerate(data, start=1):
        kind = table.get("type") if isinstance(table, dict) else None
        cls = BOX_TYPES.get(kind) if isinstance(kind, str) else None
        if cls is None:
            problems.append((number, _no_type(table)))
            continue
        box, wrong = structured({key: value for key, value in table.items() if key != "type"}, cls)
        boxes.append((number, box))
        problems += ((number, problem) for problem in wrong)
    return boxes, problems


def _no_type(table: Any) -> str:
    if not isinstance(table, dict):
        return f"must be a table, found {table!r}"
    if "type" not in table:
        return f"type is missing; there are {', '.join(BOX_TYPES)}"
    kind = table["type"]
    return f"type {kind!r} does not exist; {meant(str(kind), BOX_TYPES)}"


# -- what only the whole file can tell ----------------------------------------


def _unknown_colors(boxes: Sequence[Numbered], colors: Collection[str]) -> Iterator[_Problem]:
    for number, box in boxes:
        for key, color in _colors_of(box):
            if color and not is_color(color) and color not in colors:
                yield number, f"{key} {color!r} is not in [colors]; {meant(color, colors)}"


def _colors_of(box: Box) -> Iterator[tuple[str, str]]:
    """Yield the colours that a box names, each under its key."""
    for key in ("color", "label_color"):
        if isinstance(value := getattr(box, key, None), str):
            yield key, value
    if isinstance(box, Stack):
        yield from ((f"item {number}: color", item.color) for number, item in enumerate(box.items, start=1))


def _images(boxes: Sequence[Numbered], find: Finder) -> tuple[Mapping[str, Image], list[_Problem]]:
    """Load every picture once, as large as the largest box that shows it."""
    images: dict[str, Image] = {}
    problems: list[_Problem] = []
    shown: dict[str, list[tuple[int, Picture]]] = {}
    for number, box in boxes:
        if isinstance(box, Picture) and box.image:
            shown.setdefault(box.image, []).append((number, box))
    for name, places in shown.items():
        # A cropped or turned picture needs the longer side of its box both ways.
        side = max(0.0, *(length for _, box in places for length in (box.w, box.h)))
        try:
            found, data = find(name)
            images[name] = read_image(data, found, width_mm=side, height_mm=side)
        except FileNotFoundError:
            problem = f"there is no image {name} beside it, as .png, .jpg, .jpeg or .webp"
            problems.append((places[0][0], problem))
        except OSError as error:
            problems.append((places[0][0], f"image {name} cannot be read: {error}"))
        except ImageError as error:
            problems.append((places[0][0], str(error)))
    return images, problems


def _too_small(boxes: Sequence[Numbered], code: str) -> Iterator[_Problem]:
    """Yield what is too small to hold *code*; a code that nothing can hold is for others to refuse."""
    for number, box in boxes:
        if isinstance(box, Qr):
            try:
                qr_code(code, side_mm=box.side)
            except QrTooSmall as small:
                yield number, f"side of {small.side_mm:g} mm is too small; the code needs {small.needed_mm:g} mm"
            except InvalidRequest:
                return


def without_room(layout: Layout, code: str) -> list[str]:
    """Return a line for each box of *layout* that is too small to hold *code*, as for a layout that is read."""
    return [
        f"layout {layout.file}: {called(number, layout.boxes[number - 1].name)}: {problem}"
        for number, problem in _too_small(list(enumerate(layout.boxes, start=1)), code)
    ]
