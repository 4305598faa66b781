"""`receipt-pdf`: what was bought, for how much, with the taxes that the shop computed."""

from collections.abc import Mapping

import attrs

from stagedoor.errors import InvalidRequest
from stagedoor.rendering.api import Check, Position, RenderRequest
from stagedoor_renderers import probe
from stagedoor_renderers.drawable import prepared
from stagedoor_renderers.fields import SEPARATOR, Teller
from stagedoor_renderers.kit.faces import Weight
from stagedoor_renderers.kit.scripts import has_right_to_left
from stagedoor_renderers.kit.sheet import MM, Color, Sheet
from stagedoor_renderers.kit.typeset import from_the_right
from stagedoor_renderers.limits import checked
from stagedoor_renderers.stock import Stock, load_stock

_WIDTH, _HEIGHT = 210.0, 297.0
_LEFT, _RIGHT = 24.0, 190.0
_BOTTOM, _BOTTOM_OF_SUMS = 270.0, 278.0
_ROW = 13.0
_AMOUNT = 42.0
_GAP, _TOTAL, _TAX = 5.0, 8.0, 5.5
_KEPT_TOGETHER = 10
"""So many lines of tax are on one page with the total; more of them go on over further pages."""

_INK, _MUTED, _ACCENT, _HAIR = (Color.of(text) for text in ("#1b1a1d", "#77706b", "#a4161a", "#d9d0c3"))


@attrs.define(eq=False)
class ReceiptPdf:
    """Draws the receipt of an order on A4; a request for one position gives the same."""

    name: str = attrs.field(default="receipt-pdf", init=False)
    version: str = attrs.field(default="1", init=False)
    content_type: str = attrs.field(default="application/pdf", init=False)
    suffix: str = attrs.field(default=".pdf", init=False)
    _stock: Stock | None = attrs.field(default=None, init=False, repr=False)

    def fingerprint(self) -> str:
        """Return a hash of code, fonts and library versions."""
        return self._loaded().fingerprint

    def warm_up(self) -> None:
        """Load fonts and formats, and draw one receipt.

        Raises:
            FontError: a font file is missing or unsuitable.
        """
        self._stock = load_stock()
        self.render(RenderRequest(order=probe.order(), locale="de-DE"), probe.no_check)

    def render(self, request: RenderRequest, check: Check) -> bytes:
        """Return the PDF.

        Raises:
            InvalidRequest: the order cannot be drawn; names the field.
        """
        if request.total is not None:
            raise InvalidRequest("position: a receipt is of the whole order; ask for it without a position")
        stock = self._loaded()
        order = checked(request)
        language = stock.values.language(request.locale or order.locale)
        return _Receipt(Teller.of(order, language), stock).drawn(check)

    def notes(self, request: RenderRequest) -> tuple[str, ...]:
        """Return a sentence for every field of which something could not be drawn."""
        stock = self._loaded()
        order = checked(request)
        language = stock.values.language(request.locale or order.locale)
        receipt = _Receipt(Teller.of(order, language), stock)
        receipt.drawn(probe.no_check)
        return tuple(receipt.notes)

    def _loaded(self) -> Stock:
        return self._stock or load_stock()


class _Receipt:
    """One receipt being drawn, from the top of the first page downward."""

    def __init__(self, teller: Teller, stock: Stock) -> None:
        self._teller = teller
        self._order = teller.order
        self._faces = stock.faces
        self._setter = stock.setter
        own = {
            "number": self._order.receipt_number or str(self._order.order_id),
            "order_code": str(self._order.order_id),
            "buyer": self._order.buyer,
        }
        event = stock.event(self._order.event, teller.language)
        words = prepared(own, stock.faces)
        self._words = {**event.fields, **words.fields}
        self._sheet = Sheet(
            title=f"{self._words['label.receipt']} {self._words['number']}", language=teller.language.tag
        )
        self._y = 0.0
        self._page = 0
        self.notes: dict[str, None] = dict.fromkeys((*event.notes, *words.notes))

    def drawn(self, check: Check) -> bytes:
        """Return the document."""
        check()
        self._new_page()
        self._head()
        self._table_head()
        for position in self._order.positions:
            if self._y + _ROW > _BOTTOM:
                self._next_page(check)
                self._table_head()
            self._row(position)
        self._sums(check)
        return self._sheet.finish()

    # -- parts ----------------------------------------------------------------

    def _new_page(self) -> None:
        self._sheet.begin_page(width=_WIDTH * MM, height=_HEIGHT * MM)
        self._sheet.pen.rect(0, 0, 6 * MM, _HEIGHT * MM, color=_ACCENT)
        self._page += 1
        self._y = 30.0
        if self._page > 1:
            label = self._words["label.page"].format(number=self._page)
            self._put(label, _LEFT, 284.0, size=7.5, color=_MUTED)
            self._put(self._words["number"], _LEFT, 284.0, size=7.5, color=_MUTED, align="right")

    def _next_page(self, check: Check) -> None:
        check()
        self._new_page()

    def _has_room(self, height: float) -> bool:
        return self._y + height <= _BOTTOM_OF_SUMS

    def _head(self) -> None:
        words = self._words
        self._put(words["label.receipt"], _LEFT, self._y, size=30, bold=True)
        self._y += 14
        self._put(words["event"], _LEFT, self._y, size=13, floor=8)
        self._y += 6.5
        self._put(
            SEPARATOR.join(w for w in (words["when"], words["venue"]) if w), _LEFT, self._y, size=9.5, color=_MUTED
        )
        self._y += 14
        column = (_RIGHT - _LEFT - 12) / 3
        facts = (("receipt_number", words["number"]), ("order", words["order_code"]), ("buyer", words["buyer"]))
        for index, (label, value) in enumerate(facts):
            x = _LEFT + index * (column + 6)
            self._label(words[f"label.{label}"], x, self._y)
            self._put(value, x, self._y + 5.5, size=10.5, width=column)
        self._y += 22

    def _table_head(self) -> None:
        self._label(self._words["label.item"], _LEFT, self._y)
        self._label(self._words["label.amount"], _LEFT, self._y, align="right")
        self._y += 3
        self._hair(_INK, 0.8)
        self._y += 6

    def _row(self, position: Position) -> None:
        teller = self._teller
        seat = teller.seat_of(position)
        told = teller.position(position)
        details = [told["holder"], told["seat"] if seat else ""]
        if position.status == "refunded" or self._order.status == "refunded":
            details.append(teller.language.word("refunded"))
        row = self._prepared(
            {
                "category": position.category,
                "details": SEPARATOR.join(word for word in details if word),
                "price": told["price"],
            }
        )
        width = _RIGHT - _LEFT - _AMOUNT - 6
        indent = 5.0 if position.addon_to is not None else 0.0
        self._put(row["category"], _LEFT + indent, self._y, size=10.5, width=width - indent)
        self._put(row["details"], _LEFT + indent, self._y + 5.2, size=8, color=_MUTED, width=width - indent)
        self._put(row["price"], _RIGHT - _AMOUNT, self._y, size=10.5, width=_AMOUNT, align="right")
        self._y += _ROW
        self._hair(_HAIR, 0.4, above=3.6)

    def _sums(self, check: Check) -> None:
        order, language = self._order, self._teller.language
        self._y += _GAP
        if not self._has_room(_TOTAL + _TAX * min(len(order.taxes), _KEPT_TOGETHER)):
            self._next_page(check)
        total = sum(position.amount_minor for position in order.placed_positions)
        self._sum(language.word("total"), language.money(total, order.currency), size=13.0, bold=True)
        self._y += _TOTAL
        for tax in order.taxes:
            if not self._has_room(_TAX):
                self._next_page(check)
            label = f"{language.word('tax')} {tax.label}"
            self._sum(label, language.money(tax.amount_minor, order.currency), size=9.0, color=_MUTED)
            self._y += _TAX

    def _sum(self, label: str, amount: str, *, size: float, bold: bool = False, color: Color = _INK) -> None:
        words = self._prepared({"label": label, "amount": amount})
        self._put(words["label"], _LEFT, self._y, size=size, bold=bold, color=color, width=110)
        self._put(words["amount"], _RIGHT - 60, self._y, size=size, bold=bold, color=color, width=60, align="right")

    def _prepared(self, content: Mapping[str, str]) -> Mapping[str, str]:
        made = prepared(content, self._faces)
        self.notes |= dict.fromkeys(made.notes)
        return made.fields

    # -- lines ----------------------------------------------------------------

    def _label(self, words: str, x: float, y: float, *, align: str = "left") -> None:
        tracking = 0.0 if has_right_to_left(words) else 80.0  # letters that are joined stay so
        self._put(words.upper(), x, y, size=6.5, color=_MUTED, tracking=tracking, align=align)

    def _put(
        self,
        words: str,
        x: float,
        y: float,
        *,
        size: float,
        floor: float = 6.0,
        width: float = 0.0,
        bold: bool = False,
        color: Color = _INK,
        align: str = "left",
        tracking: float = 0.0,
    ) -> None:
        """Show one line whose capitals touch *y*, in *width* mm or as far as the margin."""
        weight: Weight = "bold" if bold else "regular"
        room = (width or _RIGHT - x) * MM
        block = self._setter.fit(weight, words, size=size, floor=floor, width=room, tracking=tracking)
        line = block.lines[0]
        if self._teller.language.is_from_right:
            # All of the page as in a mirror, but for the words.
            line = from_the_right(line)
            x, align = _LEFT + _RIGHT - x - room / MM, "left" if align == "right" else "right"
        left = x * MM + (room - line.width if align == "right" else 0.0)
        baseline = (_HEIGHT - y) * MM - self._faces[weight].cap_height / 1000 * size
        shown = self._setter.show(weight, line, block.size)
        self._sheet.text(left, baseline, shown, color=color, tracking=tracking * block.size / 1000)

    def _hair(self, color: Color, width: float, *, above: float = 0.0) -> None:
        y = (_HEIGHT - self._y + above) * MM
        self._sheet.pen.line((_LEFT * MM, y), (_RIGHT * MM, y), color=color, width=width)
