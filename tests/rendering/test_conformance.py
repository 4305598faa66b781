"""The conformance suite: the built-in renderers pass it, and each check finds what it is for."""

import importlib.metadata
import itertools
import os
import threading
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stagedoor.errors import InvalidRequest, StagedoorError
from stagedoor.rendering.api import ENTRY_POINT_GROUP, Check, RenderRequest
from stagedoor.rendering.registry import load_renderers
from stagedoor.testing import renderers as suite
from stagedoor.testing.renderers import CHECKS, Subject
from stagedoor_renderers.receipt_pdf import ReceiptPdf
from stagedoor_renderers.ticket_pass import TicketPass
from stagedoor_renderers.ticket_pdf import TicketPdf
from stagedoor_renderers.ticket_png import TicketPng
from stagedoor_renderers.ticket_text import TicketHtml, TicketText
from tests.rendering.test_registry import Plain

EVERY_CHECK = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)


HERE = [check for check in CHECKS if check is not suite.same_bytes_in_another_process]
"""All but the check that costs seconds; `test_isolation` makes it for both built-in renderers."""


@pytest.mark.parametrize("check", HERE, ids=lambda check: check.__name__)
def test_the_ticket_conforms(check: suite.Check, ticket: TicketPdf) -> None:
    check(Subject(TicketPdf))


@pytest.mark.parametrize("check", HERE, ids=lambda check: check.__name__)
def test_the_receipt_conforms(check: suite.Check, receipt: ReceiptPdf) -> None:
    check(Subject(ReceiptPdf))


@pytest.mark.parametrize("check", HERE, ids=lambda check: check.__name__)
def test_the_pass_conforms(check: suite.Check) -> None:
    check(Subject(TicketPass))


def small_picture() -> TicketPng:
    """A picture that does not take long: PDFium draws one at a time."""
    return TicketPng(dpi=36)


@pytest.mark.parametrize("check", HERE, ids=lambda check: check.__name__)
def test_the_picture_conforms(check: suite.Check) -> None:
    check(Subject(small_picture))


@pytest.mark.parametrize("make", [TicketText, TicketHtml])
@pytest.mark.parametrize("check", HERE, ids=lambda check: check.__name__)
def test_the_text_and_the_page_conform(check: suite.Check, make: type) -> None:
    check(Subject(make))


def limited(request: RenderRequest) -> RenderRequest:
    """What is far too large is refused."""
    if len(request.order.positions) > 500:
        raise InvalidRequest("order.positions: too many")
    for position in (request.position, *request.order.positions):
        if position is not None and len(position.holder) > 1000:
            raise InvalidRequest("position.holder: too long")
    return request


class OfOne(Plain):
    """Draws single positions, and refuses orders by the field."""

    def render(self, request: RenderRequest, check: Check) -> bytes:
        check()
        if request.position is None:
            raise InvalidRequest("position: a slip is of one position")
        limited(request)
        return unicodedata.normalize("NFC", request.position.holder).encode("utf-8", "replace") + b"."


@pytest.mark.parametrize("check", HERE, ids=lambda check: check.__name__)
def test_a_renderer_of_single_positions_conforms(check: suite.Check) -> None:
    check(Subject(OfOne))


# -- the checks are worth something -------------------------------------------


class Honest(Plain):
    """Passes every check."""

    def render(self, request: RenderRequest, check: Check) -> bytes:
        check()
        position = request.position or limited(request).order.positions[0]
        limited(request)
        return self.shown(unicodedata.normalize("NFC", position.holder), position.token)

    def shown(self, holder: str, token: str) -> bytes:
        return f"{holder} {token}".encode("utf-8", "replace")


@EVERY_CHECK
def test_an_honest_renderer_conforms(check: suite.Check) -> None:
    check(Subject(Honest))


_COUNT = itertools.count()


class Counting(Honest):
    def render(self, request: RenderRequest, check: Check) -> bytes:
        return super().render(request, check) + str(next(_COUNT)).encode()


class Sharing(Honest):
    """Keeps the text of the document in the renderer, where another thread overwrites it."""

    def __init__(self) -> None:
        super().__init__()
        self.text = b""
        self.meeting = threading.Barrier(2)

    def render(self, request: RenderRequest, check: Check) -> bytes:
        self.text = super().render(request, check)
        if threading.current_thread() is not threading.main_thread():
            try:
                self.meeting.wait(0.2)
            except threading.BrokenBarrierError:
                self.meeting.reset()
        return self.text


class Hashing(Honest):
    def render(self, request: RenderRequest, check: Check) -> bytes:
        return super().render(request, check) + str(hash("seed")).encode()


class Spelling(Honest):
    def render(self, request: RenderRequest, check: Check) -> bytes:
        check()
        position = request.position or request.order.positions[0]
        return position.holder.encode("utf-8", "replace") + b" "


class Parsing(Honest):
    def render(self, request: RenderRequest, check: Check) -> bytes:
        if request.position is not None and "<" in request.position.holder:
            raise ValueError("no closing tag")
        return super().render(request, check)


class Opening(Honest):
    def render(self, request: RenderRequest, check: Check) -> bytes:
        with Path(os.devnull).open("rb"):
            return super().render(request, check)


class Deaf(Honest):
    def render(self, request: RenderRequest, check: Check) -> bytes:
        try:
            return super().render(request, check)
        except Exception:  # noqa: BLE001 - the fault
            return b"ticket"


class Nothing(Honest):
    def render(self, request: RenderRequest, check: Check) -> bytes:
        return b""


class Restless(Honest):
    def fingerprint(self) -> str:
        return str(next(_COUNT))


class Quoting(Honest):
    def notes(self, request: RenderRequest) -> list[str]:
        return [f"{request.order.positions[0].holder} has no glyphs"]


@pytest.mark.parametrize(
    "check, faulty",
    [
        (suite.keeps_the_contract, Restless),
        (suite.results_pass_the_pool, Nothing),
        (suite.same_request_same_bytes, Counting),
        (suite.same_bytes_in_eight_threads, Sharing),
        (suite.same_bytes_in_another_process, Hashing),
        (suite.one_spelling_of_a_name, Spelling),
        (suite.takes_any_text, Parsing),
        (suite.takes_any_text, Quoting),
        (suite.touches_nothing_outside, Opening),
        (suite.stops_when_it_is_told, Deaf),
    ],
)
def test_each_check_finds_the_fault_that_it_is_for(check: suite.Check, faulty: Callable[[], Any]) -> None:
    with pytest.raises((AssertionError, StagedoorError)):
        check(Subject(faulty))


# -- somebody else's renderer -------------------------------------------------


def installed(name: str) -> Any:
    """The renderer of this entry point; skips where its package is not installed, but never in CI."""
    points = list(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=name))
    if not points:
        if os.environ.get("CI"):
            pytest.fail(f"{name} is not installed; the test session installs every package of tests/plugins")
        pytest.skip(f"{name} is not installed: pip install ./tests/plugins/{name}")
    return points[0].load()


def test_a_renderer_of_another_package_is_found_through_its_entry_point() -> None:
    installed("text-ticket")
    (item,) = [item for item in load_renderers().list() if item.name == "text-ticket"]
    assert item.distribution == "text-ticket"
    assert (item.content_type, item.suffix) == ("text/plain", ".txt")


@EVERY_CHECK
def test_the_renderer_of_another_package_conforms(check: suite.Check) -> None:
    check(Subject(installed("text-ticket")))
