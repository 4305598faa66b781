"""`ticket-pdf`: one page for each position, or all of an order in one document."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import attrs

from stagedoor.errors import ConfigurationError, InvalidRequest
from stagedoor.rendering.api import Check, RenderRequest
from stagedoor_renderers import probe
from stagedoor_renderers.boxes import Layout
from stagedoor_renderers.draw import Overflow, Press
from stagedoor_renderers.drawable import Prepared, prepared
from stagedoor_renderers.fields import Content, Teller
from stagedoor_renderers.ground import Ground, ground_of
from stagedoor_renderers.kit import settings
from stagedoor_renderers.kit.sheet import Sheet
from stagedoor_renderers.layout import without_room
from stagedoor_renderers.limits import checked
from stagedoor_renderers.stock import (
    LAYOUT_ENDINGS,
    Stock,
    hash_of,
    hash_of_layout,
    layout_of,
    layouts_in,
    load_stock,
)
from stagedoor_renderers.telling import Sign, plain_token, wanted_positions
from stagedoor_renderers.values import Language

DEFAULT_LAYOUT = "a5"


@attrs.frozen(kw_only=True, eq=False)
class _Room:
    """What one renderer draws with."""

    stock: Stock
    layouts: Mapping[str, Layout]
    grounds: Mapping[str, Ground]
    fingerprint: str


@attrs.define(eq=False)
class TicketPdf:
    """Draws tickets with one of the layouts.

    With a position, the document has its one page; without, a page for every
    placed position of the order. Terms that find no room on a ticket follow on
    pages of their own, once.

    A shop with layouts of its own makes a renderer of its own from this, in a
    module that the setting `plugins` names::

        RENDERERS = (TicketPdf(name="house-ticket", layouts=Path("/etc/house/layouts"), layout="stalls"),)

    Args:
        layout: the layout of requests that name none.
        layouts: a folder of layouts and pictures besides those that ship, or the file of one.
        missing: what to do about characters that no font covers: ``replace`` them
            by a visible mark, and say so in the notes of the result; or ``refuse``
            the request.
        name: what handlers and settings call it.
        sign: makes what the code says of a position's token, such as a `Signer`.
    """

    layout: str = DEFAULT_LAYOUT
    layouts: Path | None = None
    missing: Literal["replace", "refuse"] = "replace"
    name: str = "ticket-pdf"
    sign: Sign = plain_token
    version: str = attrs.field(default="1", init=False)
    content_type: str = attrs.field(default="application/pdf", init=False)
    suffix: str = attrs.field(default=".pdf", init=False)
    _room: _Room | None = attrs.field(default=None, init=False, repr=False)

    def fingerprint(self) -> str:
        """Return a hash of code, fonts, layouts and library versions."""
        return self._loaded().fingerprint

    def warm_up(self) -> None:
        """Load fonts and formats, and draw a ticket with every layout.

        Raises:
            ConfigurationError: the default layout is unknown, a layout's code is too
                small, or another package has changed a setting of ReportLab.
            FontError: a font file is missing or unsuitable.
        """
        problems = list(settings.changed_settings())
        try:
            self._room = room = self._load()
        except ConfigurationError as wrong:
            raise ConfigurationError((*problems, *wrong.problems)) from wrong
        if self.layout not in room.layouts:
            problems.append(_no_layout(self.layout, room))
        else:
            problems += without_room(room.layouts[self.layout], probe_code(self.sign))
        if problems:
            raise ConfigurationError(problems)
        problems = [problem for layout in room.layouts for problem in self._probe(layout, room)]
        if problems:
            raise ConfigurationError(problems)

    def _probe(self, layout: str, room: _Room) -> list[str]:
        """Draw a made-up order, and return what is wrong with *layout* if it is one that will be used."""
        try:
            self.render(RenderRequest(order=probe.order(), layout=layout, locale="de-DE"), probe.no_check)
        except InvalidRequest as refused:
            # A wristband has no room for a signed token; that matters to those who print wristbands.
            is_meant = layout == self.layout or layout not in room.stock.layouts
            return [str(refused)] if is_meant else []
        return []

    def render(self, request: RenderRequest, check: Check) -> bytes:
        """Return the PDF.

        Raises:
            InvalidRequest: the order cannot be drawn; names the field.
        """
        room = self._loaded()
        stock, layout = room.stock, self._layout_of(request, room)
        order = checked(request)
        language = stock.values.language(request.locale or order.locale)
        pages = self._prepared(request, language, stock)
        sheet = Sheet(title=_title(pages[0].fields), language=language.tag)
        press = Press(sheet, layout, stock.setter, from_right=language.is_from_right)
        rest: dict[str, Overflow] = {}
        for page in pages:
            check()
            # The terms of one event are the same on all tickets: print the rest of them once.
            rest |= {over.text: over for over in press.ticket(page.fields, room.grounds[layout.name])}
        for over in rest.values():
            press.further_pages(over, check)
        return sheet.finish()

    def notes(self, request: RenderRequest) -> Iterable[str]:
        """Return a sentence for every field of which something could not be drawn."""
        stock = self._loaded().stock
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

    def _contents(self, request: RenderRequest, language: Language, stock: Stock) -> Iterator[Prepared]:
        event = stock.event(request.order.event, language)
        teller = Teller.of_request(request, language)
        for position in wanted_positions(request):
            own = prepared({**teller.position(position), "token": self.sign(request.order, position)}, stock.faces)
            yield Prepared(fields={**event.fields, **own.fields}, notes=event.notes + own.notes)

    def _layout_of(self, request: RenderRequest, room: _Room) -> Layout:
        name = request.layout or self.layout
        if name not in room.layouts:
            raise InvalidRequest(_no_layout(name, room))
        return room.layouts[name]

    def _loaded(self) -> _Room:
        if self._room is None:
            self._room = self._load()
        return self._room

    def _load(self) -> _Room:
        stock = load_stock()
        own, hash_of_own = self._own_layouts()
        layouts = {**stock.layouts, **own}
        return _Room(
            stock=stock,
            layouts=layouts,
            grounds={name: ground_of(layout) for name, layout in layouts.items()},
            fingerprint=" ".join(
                (
                    stock.fingerprint,
                    hash_of_own,
                    self.layout,
                    self.missing,
                    "plain" if self.sign is plain_token else f"signed {probe_code(self.sign)}",
                )
            ),
        )

    def _own_layouts(self) -> tuple[Mapping[str, Layout], str]:
        """Return the layouts besides those that ship, and a hash of their files."""
        if self.layouts is None:
            return {}, "-"
        code = probe_code(self.sign)
        if self.layouts.suffix in LAYOUT_ENDINGS and not self.layouts.is_dir():
            own = layout_of(self.layouts, code=code)
            return own, hash_of_layout(self.layouts, own)
        return layouts_in(self.layouts, code=code), hash_of(self.layouts)


def probe_code(sign: Sign) -> str:
    """Return what *sign* makes of a made-up position: another key makes another."""
    order = probe.order()
    return sign(order, order.positions[0])


def _no_layout(name: str, room: _Room) -> str:
    return f"layout: there is none called {name!r}; there are {', '.join(room.layouts)}"


def _title(content: Content) -> str:
    return f"{content['event']} · {content['label.order']} {content['order_code']}"
