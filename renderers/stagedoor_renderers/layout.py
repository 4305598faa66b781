"""A layout's file: TOML or JSON, checked when it is read.

Everything that can be wrong with a layout is found here, and named with the file
and the box, not when the first ticket is drawn.
"""

import json
import tomllib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

from stagedoor.errors import ConfigurationError
from stagedoor_renderers.boxes import BOX_TYPES, Box, Layout, PageSize, Picture, Placed, Qr, Stack
from stagedoor_renderers.kit.images import Image, ImageError, read_image
from stagedoor_renderers.kit.pen import Color
from stagedoor_renderers.typed import Wrong, is_color, structured

_MAX_BOXES = 200


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
        return structured(data, PageSize)
    except Wrong as wrong:
        problems.append(f"layout {file}: [page] {wrong}")
        return None


def _colors(data: Any, file: str, problems: list[str]) -> Mapping[str, str]:
    colors = {"ink": "#000000", "muted": "#555555", "white": "#ffffff"}
    if not isinstance(data, dict):
        problems.append(f"layout {file}: [colors] must be a table of names and #rrggbb")
        return colors
    for name, value in data.items():
        if not isinstance(value, str) or not is_color(value):
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
            boxes.append(structured({key: value for key, value in table.items() if key != "type"}, cls))
        except Wrong as wrong:
            problems.append(f"layout {file}: {called}: {wrong}")
    return boxes


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
