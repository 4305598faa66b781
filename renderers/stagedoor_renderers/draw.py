"""Draws a layout with the content of a ticket; the only module that knows both.

The content has gone through `prepared` by then: every character of it can be
drawn, so nothing here can fail on what a buyer typed.
"""

from collections.abc import Callable, Mapping, Sequence

import attrs

from stagedoor.errors import InvalidRequest
from stagedoor_renderers import layout as model
from stagedoor_renderers.kit import text as pipeline
from stagedoor_renderers.kit.faces import Face, Faces
from stagedoor_renderers.kit.qr import QrTooSmall, qr_code
from stagedoor_renderers.kit.sheet import MM, Color, Sheet
from stagedoor_renderers.kit.typeset import Block, Line, break_lines, fit

_LINES_OF_TEXT = frozenset(("terms",))
"""Fields that keep their line breaks; all others are one line."""

_NAMED_CODES = 8
"""How many missing characters a note names."""

_WIDE_PAGE_MM = 160.0
"""From this width on, further pages have two columns: longer lines read badly."""

_TURNS = {90: (0, -1), 180: (-1, 0), 270: (0, 1)}
"""Cosine and sine of a turn clockwise."""

_FURTHER_PAGES = 50
"""More pages than the longest terms that are accepted can need."""


@attrs.frozen(kw_only=True)
class Prepared:
    """Content of which every character can be drawn, and a note for every field where one could not."""

    fields: Mapping[str, str]
    notes: tuple[str, ...] = ()


def prepared(content: Mapping[str, str], faces: Faces) -> Prepared:
    """Return *content* cleaned, shaped, and with visible marks for what no font covers."""
    fields: dict[str, str] = {}
    notes: list[str] = []
    for name, value in content.items():
        clean = pipeline.cleaned(value) if name in _LINES_OF_TEXT else pipeline.one_line(value)
        drawable = pipeline.drawable(clean, faces.common)
        fields[name] = drawable.text
        if drawable.missing:
            notes.append(_note(name, drawable.missing))
    return Prepared(fields=fields, notes=tuple(notes))


def _note(field: str, missing: Sequence[str]) -> str:
    codes = sorted({f"U+{ord(char):04X}" for chars in missing for char in chars})
    more = " and more" if len(codes) > _NAMED_CODES else ""
    named = ", ".join(codes[:_NAMED_CODES])
    return f"{field}: {len(missing)} replaced by a mark, for no font here draws {named}{more}"


@attrs.frozen(kw_only=True)
class Overflow:
    """Lines of a paragraph that had no room, with what is needed to go on with them."""

    box: model.Paragraph
    title: str
    lines: tuple[Line, ...]
    size: float


class Press:
    """Draws one layout onto one sheet, as many times as there are tickets."""

    def __init__(self, sheet: Sheet, layout: model.Layout, faces: Faces) -> None:
        self._sheet = sheet
        self._layout = layout
        self._faces = faces
        self._height = layout.page.height * MM

    def ticket(self, content: Mapping[str, str]) -> tuple[Overflow, ...]:
        """Draw one page; return what found no room on it and goes to further pages."""
        self._begin_page()
        over: list[Overflow] = []
        for box in self._layout.boxes:
            if any(not content.get(name) for name in box.needs) or any(content.get(name) for name in box.unless):
                continue
            rest = self._box(box, content)
            if rest is not None:
                over.append(rest)
        return tuple(over)

    def further_pages(self, rest: Overflow, check: Callable[[], None]) -> None:
        """Draw pages of their own for what had no room, under its title."""
        lines = list(rest.lines)
        for _ in range(_FURTHER_PAGES):
            if not lines:
                return
            check()
            lines = self._further_page(rest, lines)

    def _further_page(self, rest: Overflow, lines: list[Line]) -> list[Line]:
        self._begin_page()
        page, box = self._layout.page, rest.box
        margin, width = page.margin, page.width - 2 * page.margin
        face = self._faces[box.font]
        top = margin
        if rest.title:
            title = fit(self._faces.bold, rest.title, size=11, floor=7, width=width * MM)
            self._lines(title, margin, top, width, face=self._faces.bold, color="ink")
            top += 9
        step = rest.size * box.leading
        room = max(1, int((page.height - margin - top) * MM / step))
        columns = 2 if width > _WIDE_PAGE_MM else 1
        column = (width - 8 * (columns - 1)) / columns
        # Lines broken for the box of the first page may be wider than a column here.
        lines = [piece for line in lines for piece in self._rebroken(line, face, rest.size, column)]
        for index in range(columns):
            block = Block(lines=tuple(lines[:room]), size=rest.size)
            self._lines(
                block,
                margin + index * (column + 8),
                top,
                column,
                face=face,
                color=box.color,
                leading=box.leading,
                align=box.align,
            )
            lines = lines[room:]
        return lines

    @staticmethod
    def _rebroken(line: Line, face: Face, size: float, width: float) -> list[Line]:
        if line.width <= width * MM:
            return [line]
        return break_lines(face, line.text, size, width=width * MM)

    def _begin_page(self) -> None:
        self._sheet.begin_page(width=self._layout.page.width * MM, height=self._height)

    # -- boxes ----------------------------------------------------------------

    def _box(self, box: model.Box, content: Mapping[str, str]) -> Overflow | None:
        match box:
            case model.Rect():
                self._rect(box)
            case model.Circle():
                self._sheet.circle(box.x * MM, self._y(box.y), box.r * MM, color=self._color(box.color))
            case model.Rule():
                self._rule(box)
            case model.Qr():
                self._qr(box, content["token"])
            case model.Text():
                self._turned(box, lambda place: self._text(place, content))
            case model.Facts():
                self._turned(box, lambda place: self._facts(place, content))
            case model.Stack():
                self._turned(box, lambda place: self._stack(place, content))
            case model.Paragraph():
                return self._paragraph(box, content)
        return None

    def _rect(self, box: model.Rect) -> None:
        self._sheet.rect(
            box.x * MM,
            self._y(box.y + box.h),
            box.w * MM,
            box.h * MM,
            color=self._color(box.color),
            radius=box.radius * MM,
        )

    def _rule(self, box: model.Rule) -> None:
        self._sheet.line(
            (box.x1 * MM, self._y(box.y1)),
            (box.x2 * MM, self._y(box.y2)),
            color=self._color(box.color),
            width=box.width,
            dash=[length * MM for length in box.dash],
            round_caps=box.round,
        )

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

    def _turned[P: model.Placed](self, box: P, draw: Callable[[P], None]) -> None:
        """Draw *box* turned clockwise about its middle; a quarter turn swaps its width and height."""
        if not box.rotate:
            draw(box)
            return
        cosine, sine = _TURNS[box.rotate]
        middle_x, middle_y = (box.x + box.w / 2) * MM, self._y(box.y + box.h / 2)
        wide, high = (box.h, box.w) if cosine == 0 else (box.w, box.h)
        flat = attrs.evolve(box, x=-wide / 2, y=self._layout.page.height - high / 2, w=wide, h=high, rotate=0)
        with self._sheet.saved():
            self._sheet.draw(f"{cosine} {sine} {-sine} {cosine} {middle_x:.3f} {middle_y:.3f} cm")
            draw(flat)

    def _text(self, box: model.Text, content: Mapping[str, str]) -> None:
        words = self._cased(box.text.fill(content), upper=box.upper)
        if not words:
            return
        face = self._faces[box.font]
        block = fit(
            face,
            words,
            size=box.size,
            floor=min(box.min_size, box.size),
            width=box.w * MM,
            max_lines=box.lines,
            height=box.h * MM,
            leading=box.leading,
            tracking=box.tracking * box.size / 1000,
            balanced=box.balanced,
        )
        self._lines(
            block,
            box.x,
            box.y,
            box.w,
            face=face,
            color=box.color,
            leading=box.leading,
            align=box.align,
            tracking=box.tracking,
            height=box.h,
            valign=box.valign,
        )

    def _stack(self, box: model.Stack, content: Mapping[str, str]) -> None:
        filled = [(item, self._cased(item.text.fill(content), upper=item.upper)) for item in box.items]
        shown = [(item, words) for item, words in filled if words]
        top = box.y
        for index, (item, words) in enumerate(shown):
            face = self._faces[item.font]
            # Those below keep room for one line each at their smallest.
            kept = sum(below.gap + below.min_size / MM for below, _ in shown[index + 1 :])
            top += item.gap if index else 0.0
            block = fit(
                face,
                words,
                size=item.size,
                floor=min(item.min_size, item.size),
                width=box.w * MM,
                max_lines=item.lines,
                height=max(0.0, box.y + box.h - top - kept) * MM,
                leading=item.leading,
                tracking=item.tracking * item.size / 1000,
                balanced=item.balanced,
            )
            self._lines(
                block,
                box.x,
                top,
                box.w,
                face=face,
                color=item.color,
                leading=item.leading,
                align=box.align,
                tracking=item.tracking,
            )
            top += self._height_of(block, face, item.leading)

    @staticmethod
    def _height_of(block: Block, face: Face, leading: float) -> float:
        """Return the millimetres from the first line's capitals to the last line's baseline."""
        return (face.cap_height / 1000 + leading * (len(block.lines) - 1)) * block.size / MM

    def _facts(self, box: model.Facts, content: Mapping[str, str]) -> None:
        facts = [(fact, fact.text.fill(content)) for fact in box.items]
        shown = [(fact, words) for fact, words in facts if words]
        if not shown:
            return
        counted = box.items if box.fixed else [fact for fact, _ in shown]
        share = sum(fact.share for fact in counted)
        unit = (box.w - box.gap * (len(counted) - 1)) / share
        x = box.x
        for fact, words in shown:
            width = unit * fact.share
            self._fact(box, self._cased(fact.label.fill(content), upper=box.upper), words, x=x, width=width)
            x += width + box.gap

    def _fact(self, box: model.Facts, label: str, words: str, *, x: float, width: float) -> None:
        regular, face = self._faces.regular, self._faces[box.font]
        tracking = box.label_tracking * box.label_size / 1000
        head = fit(regular, label, size=box.label_size, floor=4.5, width=width * MM, tracking=tracking)
        self._lines(head, x, box.y, width, face=regular, color=box.label_color, tracking=box.label_tracking)
        top = box.y + box.label_size / MM * 0.72 + box.spacing
        block = fit(
            face,
            words,
            size=box.size,
            floor=min(box.min_size, box.size),
            width=width * MM,
            max_lines=box.lines,
        )
        self._lines(block, x, top, width, face=face, color=box.color, leading=box.leading)

    def _paragraph(self, box: model.Paragraph, content: Mapping[str, str]) -> Overflow | None:
        words = box.text.fill(content)
        if not words.strip():
            return None
        face = self._faces[box.font]
        column = (box.w - box.column_gap * (box.columns - 1)) / box.columns
        floor = min(box.min_size, box.size)
        # Two sizes are enough for running text: the one that is wanted, or the floor.
        size = box.size
        lines = break_lines(face, words, size, width=column * MM)
        if len(lines) > _room(box, size):
            size = floor
            lines = break_lines(face, words, size, width=column * MM)
        room = _room(box, size)
        rows = room // box.columns
        shown, rest = lines[:room], lines[room:]
        if rest and box.overflow == "ellipsis":
            shown = list(fit(face, words, size=floor, floor=floor, width=column * MM, max_lines=room).lines)
            rest = []
        for index in range(box.columns):
            block = Block(lines=tuple(shown[index * rows : (index + 1) * rows]), size=size)
            self._lines(
                block,
                box.x + index * (column + box.column_gap),
                box.y,
                column,
                face=face,
                color=box.color,
                leading=box.leading,
                align=box.align,
            )
        if not rest:
            return None
        return Overflow(box=box, title=box.title.fill(content), lines=tuple(rest), size=size)

    # -- lines ----------------------------------------------------------------

    def _lines(
        self,
        block: Block,
        x: float,
        y: float,
        width: float,
        *,
        face: Face,
        color: str,
        leading: float = 1.2,
        align: str = "left",
        tracking: float = 0.0,
        height: float | None = None,
        valign: str = "top",
    ) -> None:
        """Show a block whose first capitals touch *y* (mm from the top), or as *valign* says."""
        cap = face.cap_height / 1000 * block.size
        step = block.size * leading
        tall = cap + step * (len(block.lines) - 1)
        baseline = self._y(y) - cap
        if height is not None and valign != "top":
            spare = height * MM - tall
            baseline -= spare if valign == "bottom" else spare / 2
        spaced = tracking * block.size / 1000
        for line in block.lines:
            left = x * MM + _indent(line, width * MM, align=align, spaced=spaced)
            self._sheet.text(
                left, baseline, line, face=face, size=block.size, color=self._color(color), tracking=spaced
            )
            baseline -= step

    def _cased(self, words: str, *, upper: bool) -> str:
        """Return *words* in capitals, unless the fonts lack one of them (Georgian has some of its own)."""
        capitals = words.upper() if upper else words
        return capitals if all(char in self._faces.common for char in capitals) else words

    def _color(self, name: str) -> Color:
        return Color.of(self._layout.color(name))

    def _y(self, mm: float) -> float:
        return self._height - mm * MM


def _indent(line: Line, width: float, *, align: str, spaced: float) -> float:
    if align == "auto":
        align = "right" if line.right_to_left else "left"
    # The space after the last letter belongs to no letter.
    spare = width - line.width + spaced
    return spare if align == "right" else spare / 2 if align == "center" else 0.0


def _room(box: model.Paragraph, size: float) -> int:
    """Return how many lines have room in all columns of *box*."""
    return box.columns * max(1, int(box.h * MM / (size * box.leading)))
