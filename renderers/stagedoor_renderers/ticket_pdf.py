"""`ticket-pdf`: one page for each position, or all of an order in one document."""

from collections.abc import Iterable, Iterator
from typing import Literal

import attrs

from stagedoor.errors import ConfigurationError, InvalidRequest
from stagedoor.rendering.api import Check, Position, RenderRequest
from stagedoor_renderers import probe
from stagedoor_renderers.draw import Overflow, Prepared, Press, prepared
from stagedoor_renderers.fields import Content, Teller
from stagedoor_renderers.kit import settings
from stagedoor_renderers.kit.sheet import Sheet
from stagedoor_renderers.layout import Layout
from stagedoor_renderers.limits import checked
from stagedoor_renderers.stock import Stock, load_stock
from stagedoor_renderers.values import Language

DEFAULT_LAYOUT = "a5"


@attrs.define(eq=False)
class TicketPdf:
    """Draws tickets with one of the layouts.

    With a position, the document has its one page; without, a page for every
    placed position of the order. Terms that find no room on a ticket follow on
    pages of their own, once.

    Args:
        layout: the layout of requests that name none.
        missing: what to do about characters that no font covers: ``replace`` them
            by a visible mark, and say so in the notes of the result; or ``refuse``
            the request.
    """

    layout: str = DEFAULT_LAYOUT
    missing: Literal["replace", "refuse"] = "replace"
    name: str = attrs.field(default="ticket-pdf", init=False)
    version: str = attrs.field(default="1", init=False)
    content_type: str = attrs.field(default="application/pdf", init=False)
    suffix: str = attrs.field(default=".pdf", init=False)
    _stock: Stock | None = attrs.field(default=None, init=False, repr=False)

    def fingerprint(self) -> str:
        """Return a hash of code, fonts, layouts and library versions."""
        return f"{self._loaded().fingerprint} {self.layout} {self.missing}"

    def warm_up(self) -> None:
        """Load fonts and formats, and draw a ticket with every layout.

        Raises:
            ConfigurationError: the default layout is unknown, or another package has
                changed a setting of ReportLab.
            FontError: a font file is missing or unsuitable.
        """
        stock = self._stock = load_stock()
        problems = list(settings.changed_settings())
        if self.layout not in stock.layouts:
            problems.append(_no_layout(self.layout, stock))
        if problems:
            raise ConfigurationError(problems)
        for layout in stock.layouts:
            self.render(RenderRequest(order=probe.order(), layout=layout, locale="de-DE"), probe.no_check)

    def render(self, request: RenderRequest, check: Check) -> bytes:
        """Return the PDF.

        Raises:
            InvalidRequest: the order cannot be drawn; names the field.
        """
        stock = self._loaded()
        layout = self._layout_of(request, stock)
        order = checked(request)
        language = stock.values.language(request.locale or order.locale)
        pages = self._prepared(request, language, stock)
        sheet = Sheet(title=_title(pages[0].fields), language=language.tag)
        press = Press(sheet, layout, stock.setter)
        rest: dict[str, Overflow] = {}
        for page in pages:
            check()
            # The terms of one event are the same on all tickets: print the rest of them once.
            rest |= {over.text: over for over in press.ticket(page.fields, stock.grounds[layout.name])}
        for over in rest.values():
            press.further_pages(over, check)
        return sheet.finish()

    def notes(self, request: RenderRequest) -> Iterable[str]:
        """Return a sentence for every field of which something could not be drawn."""
        stock = self._loaded()
        language = stock.values.language(request.locale or request.order.locale)
        pages = self._contents(request, language, stock)
        return tuple(dict.fromkeys(note for page in pages for note in page.notes))

    def _prepared(self, request: RenderRequest, language: Language, stock: Stock) -> list[Prepared]:
        """Return the content of every page; refuse what cannot be drawn if that is the setting."""
        pages = list(self._contents(request, language, stock))
        notes = [note for page in pages for note in page.notes]
        if notes and self.missing == "refuse":
            raise InvalidRequest("; ".join(dict.fromkeys(notes)))
        return pages

    @staticmethod
    def _contents(request: RenderRequest, language: Language, stock: Stock) -> Iterator[Prepared]:
        event = stock.event(request.order.event, language)
        teller = Teller.of(request.order, language)
        for position in _positions(request):
            own = prepared(teller.position(position), stock.faces)
            yield Prepared(fields={**event.fields, **own.fields}, notes=event.notes + own.notes)

    def _layout_of(self, request: RenderRequest, stock: Stock) -> Layout:
        name = request.layout or self.layout
        if name not in stock.layouts:
            raise InvalidRequest(_no_layout(name, stock))
        return stock.layouts[name]

    def _loaded(self) -> Stock:
        return self._stock or load_stock()


def _no_layout(name: str, stock: Stock) -> str:
    return f"layout: there is none called {name!r}; there are {', '.join(stock.layouts)}"


def _positions(request: RenderRequest) -> tuple[Position, ...]:
    if request.position is not None:
        return (request.position,)
    placed = request.order.placed_positions
    if not placed:
        raise InvalidRequest("order.positions: none is placed, so there is no ticket to draw")
    return placed


def _title(content: Content) -> str:
    return f"{content['event']} · {content['label.order']} {content['order_code']}"
