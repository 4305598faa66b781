"""The conformance suite finds renderers for which text is markup, and renderers without limits."""

import io
import json
import re
import sys
import unicodedata
import zipfile
from collections.abc import Callable
from html import escape
from typing import Any
from urllib.parse import quote

import attrs
import pytest

from stagedoor.errors import InvalidRequest
from stagedoor.rendering.api import Check, RenderRequest
from stagedoor.testing import renderers as suite
from stagedoor.testing.reading import Reading
from stagedoor.testing.renderer_samples import PLAIN
from stagedoor.testing.renderers import Subject
from stagedoor_renderers.ticket_pdf import TicketPdf
from tests.rendering.test_conformance import Honest

# -- what is typed is text ----------------------------------------------------------


class Page(Honest):
    """Shows holders in HTML as they should be shown: escaped, in all the places where text may be."""

    content_type, suffix = "text/html", ".html"

    def shown(self, holder: str, token: str) -> bytes:
        data = json.dumps({"holder": holder}).replace("<", "\\u003c")
        page = (
            f"<!doctype html><title>{escape(holder)}</title><style>p{{color:red}}</style>"
            f'<script type="application/ld+json">{data}</script><!-- made by a test -->'
            f'<p title="{escape(holder)}">{escape(holder)}<br>'
            f'<a href="?who={quote(holder, errors="replace")}">{token}</a>'
        )
        return page.encode("utf-8", "replace")


class Drawing(Honest):
    content_type, suffix = "image/svg+xml", ".svg"

    def shown(self, holder: str, token: str) -> bytes:
        kept = "".join(char for char in holder if unicodedata.category(char)[0] != "C")
        return f'<svg xmlns="http://www.w3.org/2000/svg"><text x="1">{escape(kept)}</text></svg>'.encode()


class Data(Honest):
    content_type, suffix = "application/json", ".json"

    def shown(self, holder: str, token: str) -> bytes:
        return json.dumps({"holder": [holder], "token": token}).encode()


def zipped(**members: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return made.getvalue()


class Bundle(Data):
    content_type, suffix = "application/vnd.apple.pkpass", ".pkpass"

    def shown(self, holder: str, token: str) -> bytes:
        return zipped(**{"pass.json": super().shown(holder, token), "logo": b"\x89PNG"})


@pytest.mark.parametrize("made", [Page, Drawing, Data, Bundle])
def test_text_that_is_kept_apart_from_markup_conforms(made: type) -> None:
    suite.text_is_never_markup(Subject(made))
    suite.takes_any_text(Subject(made))


class Raw(Page):
    def shown(self, holder: str, token: str) -> bytes:
        return f"<p>{holder}</p>".encode("utf-8", "replace")


class RawInAttribute(Page):
    def shown(self, holder: str, token: str) -> bytes:
        return f"<p title='{escape(holder, quote=False)}'>{escape(holder)}</p>".encode("utf-8", "replace")


class Twice(Page):
    def shown(self, holder: str, token: str) -> bytes:
        return f"<p>{escape(escape(holder))}</p>".encode("utf-8", "replace")


class Scripted(Page):
    """The quotes are not escaped in the program, so they end its text."""

    def shown(self, holder: str, token: str) -> bytes:
        kept = holder.replace("<", "&lt;")
        return f"<script>show('{kept}')</script><p>{escape(holder)}</p>".encode("utf-8", "replace")


class Linked(Page):
    """Whoever is called ``javascript:…`` runs it."""

    def shown(self, holder: str, token: str) -> bytes:
        return f'<p><a href="{escape(holder)}">{escape(holder)}</a></p>'.encode("utf-8", "replace")


class Stripped(Page):
    def shown(self, holder: str, token: str) -> bytes:
        return f"<p>{escape(re.sub('<[^>]*>', '', holder))}</p>".encode("utf-8", "replace")


class RawDrawing(Drawing):
    def shown(self, holder: str, token: str) -> bytes:
        return f"<svg><text>{holder}</text></svg>".encode("utf-8", "replace")


class RawData(Data):
    def shown(self, holder: str, token: str) -> bytes:
        return f'{{"holder": "{holder}"}}'.encode("utf-8", "replace")


class RawBundle(Bundle):
    def shown(self, holder: str, token: str) -> bytes:
        return zipped(**{"pass.json": RawData().shown(holder, token)})


class NamedBundle(Bundle):
    """What is typed is no path."""

    def shown(self, holder: str, token: str) -> bytes:
        return zipped(**{f"{holder}.json": Data().shown(holder, token)})


class Formatted(Honest):
    def shown(self, holder: str, token: str) -> bytes:
        return super().shown(holder.replace("{id}", "4471"), token)


class Refusing(Honest):
    """A name with an ampersand is a name."""

    def shown(self, holder: str, token: str) -> bytes:
        if "&" in holder:
            raise InvalidRequest("position.holder: cannot be parsed")
        return super().shown(holder, token)


@attrs.define(eq=False)
class StrippedPdf(TicketPdf):
    """A real PDF, as engines make it for which text is markup."""

    def render(self, request: RenderRequest, check: Check) -> bytes:
        order = request.order
        positions = tuple(
            attrs.evolve(position, holder=re.sub("<[^>]*>", "", position.holder)) for position in order.positions
        )
        position = request.position and positions[0]
        changed = attrs.evolve(request, order=attrs.evolve(order, positions=positions), position=position)
        return super().render(changed, check)


class FakePdf(Page):
    content_type, suffix = "application/pdf", ".pdf"

    def shown(self, holder: str, token: str) -> bytes:
        return b"%PDF-1.7\n" + super().shown(holder, token) + b"\n%%EOF"


@pytest.mark.parametrize(
    "faulty, said",
    [
        (Raw, "position.holder is not shown as it was typed"),
        (RawInAttribute, "position.holder is not shown as it was typed"),
        (Twice, "position.holder is not shown as it was typed when it is 'AT&T S&P;'"),
        (Stripped, "position.holder is not shown as it was typed when it is '<b>Q</b>'"),
        (Scripted, "position.holder stands as it was typed in a script, a style or an address"),
        (Linked, "position.holder stands as it was typed in a script, a style or an address"),
        (RawDrawing, "is no XML"),
        (RawData, "is no JSON"),
        (RawBundle, "is no JSON"),
        (NamedBundle, "changes what the document is made of"),
        (Formatted, "position.holder is not shown as it was typed when it is '{0} %s {id}'"),
        (Refusing, "is refused: position.holder: cannot be parsed; it is on any keyboard"),
        (StrippedPdf, "position.holder is not shown as it was typed when it is '<b>Q</b>'"),
        (FakePdf, "what it draws is no PDF"),
    ],
)
def test_text_that_acts_as_markup_is_found(faulty: Callable[[], Any], said: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(said)):
        suite.text_is_never_markup(Subject(faulty))


def test_a_tag_that_repeats_those_that_are_there_is_found_by_its_text() -> None:
    usual = Reading("zqfwwwwwwwwwwwwzqf", frozenset({("b",), ("/b",)}))
    found = Reading("zqfqzqf", frozenset({("b",), ("/b",)}))
    with pytest.raises(AssertionError, match="not shown as it was typed"):
        suite._assert_is_text("<b>Q</b>", found, usual)


def test_without_pdfium_pdfs_are_not_read_back(monkeypatch: pytest.MonkeyPatch, ticket: TicketPdf) -> None:
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    assert suite._readings(ticket, PLAIN) == [None, None]


# -- limits -----------------------------------------------------------------------------


class Cutting(Honest):
    """Has no limits to refuse by: what is too long is cut off."""

    def render(self, request: RenderRequest, check: Check) -> bytes:
        check()
        holders = [position.holder[:100] for position in (request.position, *request.order.positions[:50]) if position]
        return "\n".join(holders).encode("utf-8", "replace")


def test_what_is_cut_off_conforms() -> None:
    suite.keeps_to_its_limits(Subject(Cutting))


class Endless(Honest):
    """Draws whatever comes."""

    def render(self, request: RenderRequest, check: Check) -> bytes:
        check()
        return "\n".join(position.holder for position in request.order.positions).encode("utf-8", "replace")


class EndlessPositions(Honest):
    def render(self, request: RenderRequest, check: Check) -> bytes:
        check()
        return "\n".join(position.holder[:100] for position in request.order.positions).encode("utf-8", "replace")


class Unnamed(Honest):
    def render(self, request: RenderRequest, check: Check) -> bytes:
        try:
            return super().render(request, check)
        except InvalidRequest:
            raise InvalidRequest("too much") from None


class Repeating(Honest):
    def render(self, request: RenderRequest, check: Check) -> bytes:
        holder = request.order.positions[0].holder
        if len(holder) > 1000:
            raise InvalidRequest(f"position.holder: {holder} is too long")
        return super().render(request, check)


class Overflowing(Honest):
    def render(self, request: RenderRequest, check: Check) -> bytes:
        if len(request.order.positions) > 500:
            raise RecursionError
        return super().render(request, check)


class Stuck(Honest):
    def render(self, request: RenderRequest, check: Check) -> bytes:
        while len(request.order.buyer) > 1000:
            check()
        return super().render(request, check)


@pytest.mark.parametrize(
    "faulty, said",
    [
        (Endless, "far too much in position.holder makes"),
        (EndlessPositions, "far too much in order.positions makes"),
        (Unnamed, "far too much in position.holder is refused without its name"),
        (Repeating, "the refusal of position.holder quotes it"),
        (Overflowing, "RecursionError for far too much in order.positions"),
        (Stuck, "not done after 2 s"),
    ],
)
def test_a_renderer_without_limits_is_found(faulty: Callable[[], Any], said: str) -> None:
    """The one that never comes back is ended after a while; all others are done long before."""
    patience_s = 2.0 if faulty is Stuck else 120.0
    with pytest.raises(AssertionError, match=re.escape(said)):
        suite.keeps_to_its_limits(Subject(faulty, patience_s=patience_s))
