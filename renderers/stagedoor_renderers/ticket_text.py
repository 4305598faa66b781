"""`ticket-text` and `ticket-html`: the same content for screen readers, mails and small screens."""

from html import escape

import attrs

from stagedoor.rendering.api import Check, RenderRequest
from stagedoor_renderers import probe
from stagedoor_renderers.fields import Content
from stagedoor_renderers.kit.qr import QUIET_ZONE, qr_code
from stagedoor_renderers.kit.scripts import is_right_to_left
from stagedoor_renderers.stock import Stock, load_stock
from stagedoor_renderers.telling import facts_of, told

_QR_MM = 42.0

_UNDER_THE_EVENT = ("sub_event", "ticket_of")
"""What says for itself what it is, without a label."""

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;color:#1b1a1d;margin:0;background:#f7f2ea}"
    "article{max-width:34rem;margin:1.5rem auto;padding:1.5rem 1.75rem;background:#fff;border-left:.6rem solid #a4161a}"
    "h1{font-size:1.9rem;line-height:1.15;margin:0 0 .25rem}"
    ".sub{color:#77706b;margin:0}"
    ".sub+svg{margin-top:1rem}"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1.25rem;margin:1rem 0}"
    "dt{color:#77706b}dd{margin:0;font-weight:600}"
    "svg{width:11rem;height:11rem;background:#fff}"
    ".terms{white-space:pre-line;color:#77706b;font-size:.85rem}"
)


@attrs.define(eq=False)
class _Textual:
    """What both have in common."""

    version: str = attrs.field(default="1", init=False)
    _stock: Stock | None = attrs.field(default=None, init=False, repr=False)

    def fingerprint(self) -> str:
        """Return a hash of code, words and library versions."""
        return self._loaded().fingerprint

    def warm_up(self) -> None:
        """Load words and formats, and write one order."""
        self._stock = load_stock()
        self.render(RenderRequest(order=probe.order(), locale="de-DE"), probe.no_check)

    def render(self, request: RenderRequest, check: Check) -> bytes:
        """Return the tickets; implemented by both."""
        raise NotImplementedError

    def _loaded(self) -> Stock:
        return self._stock or load_stock()


@attrs.define(eq=False)
class TicketText(_Textual):
    """Writes tickets as plain text in UTF-8."""

    name: str = attrs.field(default="ticket-text", init=False)
    content_type: str = attrs.field(default="text/plain", init=False)
    suffix: str = attrs.field(default=".txt", init=False)

    def render(self, request: RenderRequest, check: Check) -> bytes:
        """Return the text.

        Raises:
            InvalidRequest: the order cannot be told; names the field.
        """
        pages: list[str] = []
        for _, content in told(request, self._loaded().values).tickets:
            check()
            pages.append(_as_text(content))
        return "\n\n".join(pages).encode("utf-8", "replace")


@attrs.define(eq=False)
class TicketHtml(_Textual):
    """Writes tickets as one HTML page without scripts, images or links: there is nothing to load."""

    name: str = attrs.field(default="ticket-html", init=False)
    content_type: str = attrs.field(default="text/html", init=False)
    suffix: str = attrs.field(default=".html", init=False)

    def render(self, request: RenderRequest, check: Check) -> bytes:
        """Return the page.

        Raises:
            InvalidRequest: the order cannot be told; names the field.
        """
        told_ = told(request, self._loaded().values)
        articles: list[str] = []
        for _, content in told_.tickets:
            check()
            articles.append(_as_html(content))
        first = told_.tickets[0][1]
        direction = "rtl" if told_.language.is_from_right else "ltr"
        page = (
            f'<!doctype html>\n<html lang="{escape(told_.language.tag)}" dir="{direction}">\n<head>\n'
            f'<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(first['event'])} · {escape(first['label.order'])} {escape(first['order_code'])}</title>\n"
            f"<style>{_STYLE}</style>\n</head>\n<body>\n" + "\n".join(articles) + "\n</body>\n</html>\n"
        )
        return page.encode("utf-8", "replace")


def _as_text(content: Content) -> str:
    head = [content[name] for name in ("event", *_UNDER_THE_EVENT)]
    facts = facts_of(content)
    widest = max(len(label) for label, _ in facts)
    body = [f"{label + ':':<{widest + 2}}{value}" for label, value in facts]
    tail = ["", content["token"], *(["", content["terms"]] if content["terms"] else [])]
    return "\n".join([*(line for line in head if line), "", *body, *tail])


def _as_html(content: Content) -> str:
    facts = "\n".join(
        f"<dt>{escape(label)}</dt><dd{_direction(value)}>{escape(value)}</dd>" for label, value in facts_of(content)
    )
    subs = "".join(
        f'<p class="sub"{_direction(content[name])}>{escape(content[name])}</p>\n'
        for name in _UNDER_THE_EVENT
        if content[name]
    )
    terms = f'<p class="terms"{_direction(content["terms"])}>{escape(content["terms"])}</p>\n'
    return (
        f"<article>\n<h1{_direction(content['event'])}>{escape(content['event'])}</h1>\n"
        + subs
        + f"{_code(content)}\n<dl>\n{facts}\n</dl>\n"
        + (terms if content["terms"] else "")
        + "</article>"
    )


def _direction(words: str) -> str:
    """Return the attribute that tells a browser which way *words* run, whatever stands round them."""
    return f' dir="{"rtl" if is_right_to_left(words) else "ltr"}"'


def _code(content: Content) -> str:
    """Return the code as a drawing; a screen reader says the short code instead."""
    code = qr_code(content["token"], side_mm=_QR_MM)
    path = "".join(f"M{x} {y}h{width}v1h-{width}z" for x, y, width in code.runs())
    label = escape(f"{content['label.code']} {content['short_code']}")
    size = code.total
    return (
        f'<svg role="img" aria-label="{label}" viewBox="{-QUIET_ZONE} {-QUIET_ZONE} {size} {size}" '
        f'shape-rendering="crispEdges"><path d="{path}"/></svg>'
    )
