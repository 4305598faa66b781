"""The conformance suite of renderers: what every renderer must keep, checked against any of them.

A plugin's own test needs three lines::

    import pytest
    from stagedoor.testing.renderers import CHECKS, Subject

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_conformance(check):
        check(Subject(MyRenderer))

Every check raises `AssertionError` with a sentence that says what was found.
"""

import datetime as dt
import hashlib
import os
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from stagedoor.errors import InvalidRequest, StagedoorError
from stagedoor.order import Event, Order, Position, Seat, TaxLine
from stagedoor.rendering.api import Renderer, RenderRequest
from stagedoor.rendering.key import content_key
from stagedoor.rendering.pool import RenderPool
from stagedoor.rendering.registry import Candidate, Registry, check_candidates

__all__ = ["CHECKS", "Check", "Subject", "sample_order", "sample_requests"]

THREADS = 8

NAMES = (
    "Zoë Šimková Řehoř",
    "Nguyễn Thị Ánh",
    "山田太郎",
    "שלום עולם",
    "مرحبا بالعالم",
    "Ольга Їжакевич",
    "Add-on 🎉 VIP",
    "क्षत्रिय",
    "",
)
"""Names that a renderer must take: it may replace what it cannot draw, it may not fail."""

HOSTILE = (
    "AT&T",
    "<b>Anna",
    "</para>",
    "<img src='/etc/hostname'/>",
    "<img src='http://169.254.169.254/'/>",
    "&#99999999999;",
    "A\tB\x07\x1b[31m\x00",
    "A\u202egnp.exe",
    "W" * 300,
    "a" + "\u0301" * 300,
    "{holder} %s $(id) `id`",
    "\ud800",
)
"""Names that make careless renderers fail, open files, or draw something else."""


@attrs.frozen
class Subject:
    """The renderer under test, as something that makes one; the class itself will do.

    *make* must be importable by its name, for one check starts another process.
    A renderer that draws single positions only, such as a pass or a picture, must
    refuse a whole order with `InvalidRequest` and a message that begins with ``position``;
    then it is asked for single positions alone.
    """

    make: Callable[[], Any]

    def warmed(self) -> Renderer:
        """Return a renderer that is ready to draw."""
        renderer: Renderer = self.make()
        renderer.warm_up()
        return renderer

    def registry(self) -> Registry:
        """Return a registry of this renderer alone."""
        return check_candidates(
            [
                Candidate(
                    source="conformance suite",
                    distribution=type(self.make()).__module__,
                    distribution_version="",
                    load=lambda: [self.make()],
                )
            ]
        )


Check = Callable[[Subject], None]


def sample_order(holder: str = "Zoë Šimková", *, positions: int = 3) -> Order:
    """Return an order that uses every field, with *holder* on each of its positions."""
    made = tuple(
        Position(
            id=number,
            holder=holder,
            category="Stalls" if number % 2 else "Programme",
            amount_minor=0 if number % 3 == 0 else 4500,
            token=_token(f"{holder} {number}"),
            version=1,
            seat=Seat(zone="B", row="C", number=str(number)) if number % 2 else None,
            addon_to=None if number % 2 else number - 1,
        )
        for number in range(1, positions + 1)
    )
    return Order(
        order_id=4471,
        version=2,
        status="placed",
        event=Event(
            name="The Magic Flute",
            sub_event="Main hall",
            venue="Stadttheater, Bremen",
            starts_at=dt.datetime(2026, 7, 1, 18, 0, tzinfo=dt.UTC),
            doors_at=dt.datetime(2026, 7, 1, 17, 0, tzinfo=dt.UTC),
            tz="Europe/Berlin",
            terms="Latecomers are admitted after the first act.\nNo photographs.",
        ),
        locale="en-GB",
        currency="EUR",
        buyer="Zoë Šimková",
        positions=made,
        receipt_number="2026-4471",
        taxes=(TaxLine(label="7 %", amount_minor=589),),
    )


def _token(seed: str) -> str:
    """Return a token of the usual form, made from *seed*."""
    digest = hashlib.sha256(seed.encode("utf-8", "surrogatepass")).digest()
    return "".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[byte % 32] for byte in digest[:26])


def sample_requests(holder: str = "Zoë Šimková") -> tuple[RenderRequest, RenderRequest]:
    """Return a request for one position and one for the whole order."""
    order = sample_order(holder)
    return (
        RenderRequest(order=order, position=order.positions[0], locale=order.locale),
        RenderRequest(order=order, locale=order.locale),
    )


def _requests_for(renderer: Renderer, holder: str = "Zoë Šimková") -> tuple[RenderRequest, ...]:
    """Return what *renderer* must draw: one position, and the whole order if it draws those."""
    single, whole = sample_requests(holder)
    return (single, whole) if _draws_orders(renderer) else (single,)


def _draws_orders(renderer: Renderer) -> bool:
    try:
        renderer.render(sample_requests()[1], _no_check)
    except InvalidRequest as refused:
        return not str(refused).startswith("position")
    return True


def _no_check() -> None:
    """Want the result."""


# -- the checks ---------------------------------------------------------------


def keeps_the_contract(subject: Subject) -> None:
    """All attributes and methods are there, and the registry takes them."""
    registry = subject.registry()
    registry.warm_up()
    (item,) = registry.list()
    assert item.renderer.fingerprint() == item.renderer.fingerprint(), "fingerprint() changes from call to call"


def results_pass_the_pool(subject: Subject) -> None:
    """Results are bytes, not empty, and of the promised type."""
    registry = subject.registry()
    registry.warm_up()
    pool = RenderPool(registry)
    (item,) = registry.list()
    for request in _requests_for(item.renderer):
        assert pool.render(item.name, request).content


def same_request_same_bytes(subject: Subject) -> None:
    """Two renders, and two instances, give the same bytes."""
    first, second = subject.warmed(), subject.warmed()
    for name in NAMES:
        for request in _requests_for(first, name):
            expected = first.render(request, _no_check)
            assert first.render(request, _no_check) == expected, f"two renders for {name!r} differ"
            assert second.render(request, _no_check) == expected, f"two instances differ for {name!r}"


def same_bytes_in_eight_threads(subject: Subject) -> None:
    """Eight threads at once give the bytes of one: each document has its own text and nothing else."""
    renderer = subject.warmed()
    requests = [sample_requests(f"{name} {number}")[0] for number in range(4) for name in NAMES]
    alone = [renderer.render(request, _no_check) for request in requests]
    begin = threading.Barrier(THREADS, timeout=60)
    wrong: list[str] = []

    def work(number: int) -> None:
        begin.wait()
        for turn in range(len(requests)):
            index = (turn * (2 * number + 1) + number) % len(requests)
            if renderer.render(requests[index], _no_check) != alone[index]:
                wrong.append(f"request {index} in thread {number}")

    threads = [threading.Thread(target=_reporting(work, wrong), args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, f"not the bytes of one thread: {'; '.join(wrong[:5])}"


def _reporting(work: Callable[[int], None], wrong: list[str]) -> Callable[[int], None]:
    def run(number: int) -> None:
        try:
            work(number)
        except Exception as error:  # noqa: BLE001 - shown by the check, in its own thread
            wrong.append(f"{type(error).__name__} in thread {number}")

    return run


_ELSEWHERE = """
import hashlib, importlib, sys, time
time.tzset()
made = importlib.import_module(sys.argv[1])
for name in sys.argv[2].split("."):
    made = getattr(made, name)
from stagedoor.testing.renderers import Subject, digest_of
print(digest_of(Subject(made)))
"""


def digest_of(subject: Subject) -> str:
    """Return a digest of what the renderer draws for the sample requests."""
    renderer = subject.warmed()
    found = hashlib.sha256()
    for name in NAMES:
        for request in _requests_for(renderer, name):
            found.update(renderer.render(request, _no_check))
            found.update(content_key(request, renderer).encode())
    return found.hexdigest()


def same_bytes_in_another_process(subject: Subject) -> None:
    """Another hash seed, time zone, language and day (as far as the environment tells it) change nothing."""
    module, name = subject.make.__module__, subject.make.__qualname__
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "4242",
        "TZ": "Pacific/Auckland",
        "SOURCE_DATE_EPOCH": "86400",
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(  # noqa: S603 - this interpreter, with a program that stands above
        [sys.executable, "-c", _ELSEWHERE, module, name], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"it failed in another process: {done.stderr[-500:]}"
    assert done.stdout.strip() == digest_of(subject), "another process draws other bytes"


def one_spelling_of_a_name(subject: Subject) -> None:
    """A name in composed and in decomposed spelling gives the same bytes."""
    renderer = subject.warmed()
    for name in ("Zoë Šimková", "Nguyễn Thị Ánh"):
        composed, decomposed = (
            renderer.render(_for(unicodedata.normalize(form, name)), _no_check) for form in ("NFC", "NFD")
        )
        assert composed == decomposed, f"the spelling of {name!r} changes the document"


def _for(holder: str) -> RenderRequest:
    """Return a request with this holder and a token that does not depend on it."""
    order = sample_order()
    position = attrs.evolve(order.positions[0], holder=holder)
    return RenderRequest(order=order, position=position, locale=order.locale)


def takes_any_text(subject: Subject) -> None:
    """Whatever a buyer or organiser types is drawn, or refused by the name of its field; nothing else is raised."""
    renderer = subject.warmed()
    for words in HOSTILE:
        for request in _with_words(words):
            try:
                renderer.render(request, _no_check)
            except InvalidRequest as refused:
                if len(words) > _TELLING and words in str(refused):
                    raise AssertionError(f"the refusal quotes the order: {refused}") from refused
            except Exception as error:
                raise AssertionError(
                    f"{type(error).__name__} for {words!r}: draw it, or raise InvalidRequest"
                ) from error


_TELLING = 4
"""Shorter text is found in any sentence by chance."""


def _with_words(words: str) -> Iterator[RenderRequest]:
    order = sample_order(words)
    event = attrs.evolve(order.event, name=words, venue=words, sub_event=words, terms=words)
    seat = Seat(zone=words, row=words, number=words)
    position = attrs.evolve(order.positions[0], category=words, seat=seat)
    yield RenderRequest(order=order, position=order.positions[0], locale="en")
    yield RenderRequest(order=attrs.evolve(order, event=event, buyer=words), position=position, locale="en")


_WATCHED = ("open", "socket", "subprocess", "os")
_WATCHED_TOO = ("ctypes.dlopen", "ctypes.dlsym")
"""A library that was loaded in the warm-up may be called; it must not be looked for later."""


def touches_nothing_outside(subject: Subject) -> None:
    """No file, connection or process is opened inside render, whatever the order says."""
    renderer = subject.warmed()
    seen: list[str] = []
    watching = threading.local()

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if getattr(watching, "on", False) and (event.partition(".")[0] in _WATCHED or event in _WATCHED_TOO):
            seen.append(f"{event} {arguments!r:.100}")

    # An audit hook cannot be taken away again; the switch makes it deaf.
    sys.addaudithook(watch)
    for words in (*HOSTILE, *NAMES):
        for request in _with_words(words):
            watching.on = True
            try:
                renderer.render(request, _no_check)
            except StagedoorError:
                pass  # refused, which is another check's business
            finally:
                watching.on = False
    assert not seen, f"render() touched the outside: {'; '.join(seen[:5])}"


class _Unwanted(Exception):
    """What a check raises whose result nobody wants any more."""


def stops_when_it_is_told(subject: Subject) -> None:
    """The check is called, and what it raises comes out."""

    def check() -> None:
        raise _Unwanted

    renderer = subject.warmed()
    order = sample_order(positions=20)
    asked = RenderRequest(order=order, position=None if _draws_orders(renderer) else order.positions[0], locale="en")
    try:
        renderer.render(asked, check)
    except _Unwanted:
        return
    raise AssertionError("render() never called check(), or swallowed what it raised")


CHECKS: tuple[Check, ...] = (
    keeps_the_contract,
    results_pass_the_pool,
    same_request_same_bytes,
    same_bytes_in_eight_threads,
    same_bytes_in_another_process,
    one_spelling_of_a_name,
    takes_any_text,
    touches_nothing_outside,
    stops_when_it_is_told,
)
"""All checks, in the order in which they are best read."""
