"""The ground of a layout: the shapes that are the same on every ticket, drawn once."""

import attrs

from stagedoor_renderers import boxes as model
from stagedoor_renderers.kit.pen import Pen
from stagedoor_renderers.kit.sheet import MM


@attrs.frozen
class Ground:
    """The shapes that a layout begins with, as operators, and how many boxes they are."""

    operators: str
    boxes: int


def ground_of(layout: model.Layout) -> Ground:
    """Return the ground of *layout*: its boxes up to the first that depends on a ticket."""
    pen = Pen()
    count = 0
    for box in layout.boxes:
        if not isinstance(box, model.Rect | model.Circle | model.Rule) or box.needs or box.unless:
            break
        draw_shape(pen, box, layout)
        count += 1
    return Ground(pen.operators, count)


def draw_shape(pen: Pen, box: model.Rect | model.Circle | model.Rule, layout: model.Layout) -> None:
    """Draw one shape of *layout*."""
    height, color = layout.page.height, layout.colors[box.color]
    match box:
        case model.Rect():
            bottom = (height - box.y - box.h) * MM
            pen.rect(box.x * MM, bottom, box.w * MM, box.h * MM, color=color, radius=box.radius * MM)
        case model.Circle():
            pen.circle(box.x * MM, (height - box.y) * MM, box.r * MM, color=color)
        case model.Rule():
            pen.line(
                (box.x1 * MM, (height - box.y1) * MM),
                (box.x2 * MM, (height - box.y2) * MM),
                color=color,
                width=box.width,
                dash=[length * MM for length in box.dash],
                round_caps=box.round,
            )
