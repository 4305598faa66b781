"""Draws a layout with the content of a ticket; the only module that knows both.

The content has gone through `prepared` by then: every character of it can be
drawn, so nothing here can fail on what a buyer typed.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from stagedoor.errors import InvalidRequest
from stagedoor_renderers import boxes as model
from stagedoor_renderers import sharing
from stagedoor_renderers.ground import Ground, draw_shape
from stagedoor_renderers.kit.desk import Typesetter
from stagedoor_renderers.kit.faces import Weight
from stagedoor_renderers.kit.pen import Color, number
from stagedoor_renderers.kit.qr import QrTooSmall, qr_code
from stagedoor_renderers.kit.sheet import MM, Sheet
from stagedoor_renderers.kit.typeset import Block, Line, from_the_right, rejoined

_ROUNDING = 1e-6
"""A box that has room for three lines to the last bit has room for three."""

_WIDE_PAGE_MM = 160.0
"""From this width on, further pages have two columns: longer lines read badly."""

_COLUMN_GAP_MM = 8.0
_TITLE_MM = 9.0

_FURTHER_PAGES = 50
"""The longest terms that are accepted need fewer on any but the smallest paper."""

_TURNS = {90: (0, -1), 180: (-1, 0), 270: (0, 1)}
"""Cosine and sine of a turn clockwise."""


@attrs.frozen(kw_only=True)
class Overflow:
    """Text of a paragraph that had no room, with what is needed to go on with it."""

    box: model.Paragraph
    title: str
    text: str
    size: float


@attrs.frozen(kw_only=True)
class _Style:
    """How the lines of a block are shown."""

    weight: Weight
    color: str
    leading: float = 1.2
    align: str = "start"
    tracking: float = 0.0


class Press:
    """Draws one layout onto one sheet, as many times as there are tickets.

    Args:
        sheet: the document.
        layout: what is drawn.
        setter: sets its text.
        from_right: the words are in a language that is read from the right: what is set from
            the start is set from the right edge of its box, rows and columns begin there.
    """

    def __init__(self, sheet: Sheet, layout: model.Layout, setter: Typesetter, *, from_right: bool = False) -> None:
        self._sheet = sheet
        self._layout = layout
        self._setter = setter
        self._common = setter.faces.common
        self._height = layout.page.height * MM
        self._from_right = from_right
        self._paper = [box for box in layout.boxes if _is_paper(box, layout.page)]

    def ticket(self, content: Mapping[str, str], ground: Ground) -> tuple[Overflow, ...]:
        """Draw one page; return what found no room on it and goes to further pages."""
        self._begin_page()
        self._sheet.pen.draw(ground.operators)
        over: list[Overflow] = []
        for box in self._layout.boxes[ground.boxes :]:
            if any(not content.get(name) for name in box.needs) or any(content.get(name) for name in box.unless):
                continue
            rest = self._box(box, content)
            if rest is not None:
                over.append(rest)
        return tuple(over)

    def further_pages(self, rest: Overflow, check: Callable[[], None]) -> None:
        """Draw pages of their own for what had no room, under its title.

        Raises:
            InvalidRequest: they would be too many; names the box.
        """
        page, box = self._layout.page, rest.box
        width = page.width - 2 * page.margin
        columns = 2 if width > _WIDE_PAGE_MM else 1
        column = (width - _COLUMN_GAP_MM * (columns - 1)) / columns
        top = page.margin + (_TITLE_MM if rest.title else 0.0)
        rows = max(1, int((page.height - page.margin - top) * MM / (rest.size * box.leading)))
        lines = self._setter.break_lines(box.font, rest.text, rest.size, width=column * MM)
        style = _Style(weight=box.font, color=box.color, leading=box.leading, align=box.align)
        if len(lines) > _FURTHER_PAGES * rows * columns:
            raise InvalidRequest(
                f"layout {self._layout.name}: the rest of box {box.name or 'paragraph'} needs more than "
                f"{_FURTHER_PAGES} pages; shorten the text, or choose larger paper"
            )
        for start in range(0, len(lines), rows * columns):
            check()
            self._begin_page()
            for paper in self._paper:
                self._box(paper, {})
            self._title(rest.title, page.margin, page.margin, width)
            for index in range(columns):
                first = start + index * rows
                block = Block(lines=lines[first : first + rows], size=rest.size)
                place = self._mirrored(page.margin + index * (column + _COLUMN_GAP_MM), column, page.margin, width)
                self._lines(block, place, top, column, style=style)

    def _title(self, words: str, x: float, y: float, width: float) -> None:
        block = self._setter.fit("bold", words, size=11, floor=7, width=width * MM)
        self._lines(block, x, y, width, style=_Style(weight="bold", color="ink"))

    def _begin_page(self) -> None:
        self._sheet.begin_page(width=self._layout.page.width * MM, height=self._height)

    # -- boxes ----------------------------------------------------------------

    def _box(self, box: model.Box, content: Mapping[str, str]) -> Overflow | None:
        match box:
            case model.Rect() | model.Circle() | model.Rule():
                draw_shape(self._sheet.pen, box, self._layout)
            case model.Qr():
                self._qr(box, content["token"])
            case model.Picture():
                self._turned(box, self._picture)
            case model.Text():
                x = self._mirrored(box.x, box.w, 0.0, self._layout.page.width) if box.mirror else box.x
                self._turned(attrs.evolve(box, x=x), lambda place: self._text(place, content))
            case model.Facts():
                self._turned(box, lambda place: self._facts(place, content))
            case model.Stack():
                self._turned(box, lambda place: self._stack(place, content))
            case model.Addons():
                self._turned(box, lambda place: self._addons(place, content))
            case model.Paragraph():
                rest: list[Overflow] = []
                self._turned(box, lambda place: rest.extend(self._paragraph(place, content)))
                return rest[0] if rest else None
        return None

    def _qr(self, box: model.Qr, token: str) -> None:
        try:
            code = qr_code(token, side_mm=box.side)
        except QrTooSmall as small:
            name = box.name or "qr"
            raise InvalidRequest(
                f"layout {self._layout.name}: box {name} has a side of {small.side_mm:g} mm, "
                f"position.token needs {small.needed_mm:g} mm"
            ) from None
        self._sheet.qr(box.x * MM, self._y(box.y + box.side), box.side * MM, code=code)

    def _picture(self, box: model.Picture) -> None:
        image = self._layout.images[box.image]
        ratios = (box.w / image.width, box.h / image.height)
        ratio = max(ratios) if box.fit == "cover" else min(ratios)
        width, height = image.width * ratio, image.height * ratio
        left = box.x + (box.w - width) * {"left": 0.0, "center": 0.5, "right": 1.0}[box.align]
        bottom = box.y + box.h - (box.h - height) / 2
        pen = self._sheet.pen
        with pen.saved():
            frame = (box.x * MM, self._y(box.y + box.h), box.w * MM, box.h * MM)
            pen.draw(f"{' '.join(map(number, frame))} re W n")
            self._sheet.image(left * MM, self._y(bottom), width * MM, height * MM, image=image)

    def _turned[P: model.Placed](self, box: P, draw: Callable[[P], None]) -> None:
        """Draw *box* turned clockwise about its middle; a quarter turn swaps its width and height."""
        if not box.rotate:
            draw(box)
            return
        cosine, sine = _TURNS[box.rotate]
        middle_x, middle_y = (box.x + box.w / 2) * MM, self._y(box.y + box.h / 2)
        wide, high = (box.h, box.w) if cosine == 0 else (box.w, box.h)
        flat = attrs.evolve(box, x=-wide / 2, y=self._layout.page.height - high / 2, w=wide, h=high, rotate=0)
        pen = self._sheet.pen
        with pen.saved():
            pen.draw(f"{cosine} {sine} {-sine} {cosine} {middle_x:.3f} {middle_y:.3f} cm")
            draw(flat)

    def _text(self, box: model.Text, content: Mapping[str, str]) -> None:
        words = self._cased(box.text.fill(content), upper=box.upper)
        if words:
            block = self._fitted(box, words, width=box.w, height=box.h)
            self._lines(
                block, box.x, box.y, box.w, style=_style(box, words, box.align), height=box.h, valign=box.valign
            )

    def _stack(self, box: model.Stack, content: Mapping[str, str]) -> None:
        filled = [(item, self._cased(item.text.fill(content), upper=item.upper)) for item in box.items]
        shown = [(item, words) for item, words in filled if words]
        top = box.y
        for index, (item, words) in enumerate(shown):
            # Those below keep the room that they need at their smallest.
            kept = sum(below.gap + self._least(below, text, box.w) for below, text in shown[index + 1 :])
            top += item.gap if index else 0.0
            block = self._fitted(item, words, width=box.w, height=max(0.0, box.y + box.h - top - kept))
            self._lines(block, box.x, top, box.w, style=_style(item, words, box.align))
            top += self._tall(block, item.font, item.leading) / MM

    def _least(self, item: model.Entry, words: str, width: float) -> float:
        """Return how many mm *item* needs at its smallest size, with a line's descenders."""
        size = min(item.min_size, item.size)
        spaced = sharing.tracking(words, item.tracking)
        block = self._setter.fit(
            item.font, words, size=size, floor=size, width=width * MM, max_lines=item.lines, tracking=spaced
        )
        return size * (1 + item.leading * (len(block.lines) - 1)) / MM

    def _fitted(self, box: model.Text | model.Entry, words: str, *, width: float, height: float) -> Block:
        return self._setter.fit(
            box.font,
            words,
            size=box.size,
            floor=min(box.min_size, box.size),
            width=width * MM,
            max_lines=box.lines,
            height=height * MM,
            leading=box.leading,
            tracking=sharing.tracking(words, box.tracking),
            balanced=box.balanced,
        )

    def _facts(self, box: model.Facts, content: Mapping[str, str]) -> None:
        filled = [(fact, fact.text.fill(content)) for fact in box.items]
        shown = [(fact, words) for fact, words in filled if words]
        if not shown:
            return
        facts = [
            sharing.Fact(label=self._cased(fact.label.fill(content), upper=box.upper), words=words)
            for fact, words in shown
        ]
        row = sharing.row_of(box, facts, _shares(box, [fact for fact, _ in shown]), self._setter)
        heads = [
            sharing.label_block(fact.label, box, width=width, setter=self._setter)
            for fact, width in zip(facts, row.widths, strict=True)
        ]
        above = sharing.above_words(heads, box, self._setter)
        x = box.x
        for fact, head, points in zip(facts, heads, row.widths, strict=True):
            width = points / MM
            place = self._mirrored(x, width, box.x, box.w)
            self._label(box, fact.label, head, place, bottom=box.y + above / MM - box.spacing, width=width)
            block = sharing.words_block(fact.words, box, row.size, width=points, above=above, setter=self._setter)
            style = _Style(weight=box.font, color=box.color, leading=box.leading)
            self._lines(block, place, box.y + above / MM, width, style=style)
            x += width + box.gap

    def _label(self, box: model.Facts, label: str, head: Block, x: float, *, bottom: float, width: float) -> None:
        """Show a label whose last line stands on that of its neighbours, *bottom* mm from the top."""
        spaced = sharing.tracking(label, box.label_tracking)
        style = _Style(weight="regular", color=box.label_color, tracking=spaced, leading=sharing.LABEL_LEADING)
        self._lines(head, x, bottom - self._tall(head, "regular", sharing.LABEL_LEADING) / MM, width, style=style)

    def _addons(self, box: model.Addons, content: Mapping[str, str]) -> None:
        names = [name for name in content["addon_list"].split("\n") if name]
        if not names:
            return
        top = box.y
        label = self._cased(box.label.fill(content), upper=box.upper)
        if label:
            tracking = sharing.tracking(label, box.label_tracking)
            head = self._setter.fit(
                "regular",
                label,
                size=box.label_size,
                floor=min(sharing.LABEL_FLOOR, box.label_size),
                width=box.w * MM,
                tracking=tracking,
            )
            style = _Style(weight="regular", color=box.label_color, align=box.align, tracking=tracking)
            self._lines(head, box.x, top, box.w, style=style)
            top += self._tall(head, "regular", 1.0) / MM + box.spacing
        block = self._listed(box, names, height=max(0.0, box.y + box.h - top) * MM)
        self._lines(
            block,
            box.x,
            top,
            box.w,
            style=_Style(weight=box.font, color=box.color, leading=box.leading, align=box.align),
        )

    def _listed(self, box: model.Addons, names: Sequence[str], *, height: float) -> Block:
        """Return a line for each name in one size; the last one counts those that have no room."""
        floor = min(box.min_size, box.size)
        size, room = box.size, self._rows(box, box.size, height)
        if len(names) > room:
            size, room = floor, self._rows(box, floor, height)
        shown = names if len(names) <= room else [*names[: room - 1], f"+ {len(names) - room + 1}"]
        width = box.w * MM
        widest = max(self._setter.width_of(box.font, name, size) for name in shown)
        size = max(floor, min(size, math.floor(4 * size * width / widest) / 4)) if widest > width else size
        blocks = [self._setter.fit(box.font, name, size=size, floor=size, width=width) for name in shown]
        return Block(lines=tuple(block.lines[0] for block in blocks), size=size)

    def _rows(self, box: model.Addons, size: float, height: float) -> int:
        """Return how many lines of *size* have room in *height* points."""
        return max(1, 1 + int((height - self._cap(box.font, size)) / (size * box.leading) + _ROUNDING))

    def _paragraph(self, box: model.Paragraph, content: Mapping[str, str]) -> tuple[Overflow, ...]:
        """Draw a paragraph; return what found no room, if that goes to further pages."""
        words = box.text.fill(content)
        if not words.strip():
            return ()
        column = (box.w - box.column_gap * (box.columns - 1)) / box.columns
        # Two sizes are enough for running text: the one that is wanted, or the floor.
        size = box.size
        lines = self._setter.break_lines(box.font, words, size, width=column * MM)
        if len(lines) > _room(box, size):
            size = min(box.min_size, box.size)
            lines = self._setter.break_lines(box.font, words, size, width=column * MM)
        room = _room(box, size)
        shown, rest = lines[:room], lines[room:]
        if rest and box.overflow == "ellipsis":
            cut = self._setter.fit(box.font, words, size=size, floor=size, width=column * MM, max_lines=room)
            shown, rest = cut.lines, ()
        style = _Style(weight=box.font, color=box.color, leading=box.leading, align=box.align)
        rows = room // box.columns
        for index in range(box.columns):
            block = Block(lines=shown[index * rows : (index + 1) * rows], size=size)
            place = self._mirrored(box.x + index * (column + box.column_gap), column, box.x, box.w)
            self._lines(block, place, box.y, column, style=style)
        if not rest:
            return ()
        return (Overflow(box=box, title=box.title.fill(content), text=rejoined(rest), size=size),)

    def _mirrored(self, x: float, width: float, left: float, whole: float) -> float:
        """Return where a part of a row goes: where it was put, or as far from the other end of the row."""
        return 2 * left + whole - x - width if self._from_right else x

    # -- lines ----------------------------------------------------------------

    def _lines(
        self,
        block: Block,
        x: float,
        y: float,
        width: float,
        *,
        style: _Style,
        height: float | None = None,
        valign: str = "top",
    ) -> None:
        """Show a block whose first capitals touch *y* (mm from the top), or as *valign* says."""
        baseline = self._y(y) - self._cap(style.weight, block.size)
        if height is not None and valign != "top":
            spare = height * MM - self._tall(block, style.weight, style.leading)
            baseline -= spare if valign == "bottom" else spare / 2
        color: Color = self._layout.colors[style.color]
        spaced = style.tracking * block.size / 1000
        align = self._side(style.align)
        indents = _indents(block.lines, width * MM, align=align, spaced=spaced)
        for line, indent in zip(block.lines, indents, strict=True):
            directed = from_the_right(line) if self._from_right else line
            shown = self._setter.show(style.weight, directed, block.size)
            self._sheet.text(x * MM + indent, baseline, shown, color=color, tracking=spaced)
            baseline -= block.size * style.leading

    def _side(self, align: str) -> str:
        """Return the side that *align* means in the language of this sheet."""
        if align in ("start", "end"):
            return "right" if (align == "start") == self._from_right else "left"
        return align

    def _cap(self, weight: Weight, size: float) -> float:
        return self._setter.faces[weight].cap_height / 1000 * size

    def _tall(self, block: Block, weight: Weight, leading: float) -> float:
        """Return the points from the first line's capitals to the last line's baseline."""
        return self._cap(weight, block.size) + leading * block.size * (len(block.lines) - 1)

    def _cased(self, words: str, *, upper: bool) -> str:
        """Return *words* in capitals, unless the fonts lack one of them (Georgian has some of its own)."""
        capitals = words.upper() if upper else words
        return capitals if not upper or self._common.issuperset(capitals) else words

    def _y(self, mm: float) -> float:
        return self._height - mm * MM


def _is_paper(box: model.Box, page: model.PageSize) -> bool:
    """Tell whether *box* is the ground of the whole page: light words need it to be dark, on further pages too."""
    if not isinstance(box, model.Rect | model.Picture) or box.needs or box.unless or box.rotate:
        return False
    return box.x == box.y == 0 and box.w >= page.width and box.h >= page.height


def _shares(box: model.Facts, shown: Sequence[model.Fact]) -> list[float]:
    """Return the width of each fact that is shown, by its share of the row, in points."""
    counted = box.items if box.fixed else shown
    unit = (box.w - box.gap * (len(counted) - 1)) * MM / sum(fact.share for fact in counted)
    return [unit * fact.share for fact in shown]


def _style(box: model.Text | model.Entry, words: str, align: str) -> _Style:
    tracking = sharing.tracking(words, box.tracking)
    return _Style(weight=box.font, color=box.color, leading=box.leading, align=align, tracking=tracking)


def _indents(lines: Sequence[Line], width: float, *, align: str, spaced: float) -> Iterator[float]:
    """Yield how far each line begins from the left edge of its box."""
    longest = max((line.width for line in lines), default=0.0)
    for line in lines:
        if align == "center":
            # The space after the last letter belongs to no letter.
            yield (width - line.width + spaced) / 2
        elif align == "right" or (align == "auto" and line.right_to_left):
            yield width - line.width + spaced
        else:
            # Lines that are read from the right begin under one another, also in a box that is set from the left.
            yield longest - line.width if line.right_to_left else 0.0


def _room(box: model.Paragraph, size: float) -> int:
    """Return how many lines have room in all columns of *box*."""
    return box.columns * max(1, int(box.h * MM / (size * box.leading)))
