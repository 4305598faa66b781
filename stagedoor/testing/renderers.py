"""The conformance suite of renderers: what every renderer must keep, checked against any of them.

A plugin's own test needs three lines::

    import pytest
    from stagedoor.testing.renderers import CHECKS, Subject

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_conformance(check):
        check(Subject(MyRenderer))

Every check raises `AssertionError` with a sentence that says what was found.
"""

import hashlib
import json
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from stagedoor.errors import InvalidRequest, StagedoorError
from stagedoor.rendering.api import Renderer, RenderRequest
from stagedoor.rendering.key import content_key
from stagedoor.rendering.pool import RenderPool
from stagedoor.testing.reading import Reading, Unreadable, read_back, squeezed
from stagedoor.testing.renderer_samples import (
    HOSTILE,
    MARKUP,
    NAMES,
    PLAIN,
    SHOWN,
    far_too_much,
    marked,
    sample_order,
    sample_requests,
    saying,
    with_holder,
    with_words,
)
from stagedoor.testing.renderer_subject import Subject, draws_orders, elsewhere, no_check, requests_for

__all__ = ["CHECKS", "Check", "Subject", "sample_order", "sample_requests"]

THREADS = 8


Check = Callable[[Subject], None]


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
    for request in requests_for(item.renderer):
        assert pool.render(item.name, request).content


def same_request_same_bytes(subject: Subject) -> None:
    """Two renders, and two instances, give the same bytes."""
    first, second = subject.warmed(), subject.warmed()
    for name in NAMES:
        for request in requests_for(first, name):
            expected = first.render(request, no_check)
            assert first.render(request, no_check) == expected, f"two renders for {name!r} differ"
            assert second.render(request, no_check) == expected, f"two instances differ for {name!r}"


def same_bytes_in_eight_threads(subject: Subject) -> None:
    """Eight threads at once give the bytes of one: each document has its own text and nothing else."""
    renderer = subject.warmed()
    requests = [sample_requests(f"{name} {number}")[0] for number in range(4) for name in NAMES]
    alone = [renderer.render(request, no_check) for request in requests]
    begin = threading.Barrier(THREADS, timeout=60)
    wrong: list[str] = []

    def work(number: int) -> None:
        begin.wait()
        for turn in range(len(requests)):
            index = (turn * (2 * number + 1) + number) % len(requests)
            if renderer.render(requests[index], no_check) != alone[index]:
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


def digest_of(subject: Subject) -> str:
    """Return a digest of what the renderer draws for the sample requests."""
    renderer = subject.warmed()
    found = hashlib.sha256()
    for name in NAMES:
        for request in requests_for(renderer, name):
            found.update(renderer.render(request, no_check))
            found.update(content_key(request, renderer).encode())
    return found.hexdigest()


def print_digest(subject: Subject) -> None:
    """Print the digest, for another process."""
    print(digest_of(subject))  # noqa: T201 - this is how it is told


def same_bytes_in_another_process(subject: Subject) -> None:
    """Another hash seed, time zone, language and day (as far as the environment tells it) change nothing."""
    assert elsewhere(subject, "print_digest") == digest_of(subject), "another process draws other bytes"


def one_spelling_of_a_name(subject: Subject) -> None:
    """A name in composed and in decomposed spelling gives the same bytes."""
    renderer = subject.warmed()
    for name in ("Zoë Šimková", "Nguyễn Thị Ánh"):
        composed, decomposed = (
            renderer.render(with_holder(unicodedata.normalize(form, name)), no_check) for form in ("NFC", "NFD")
        )
        assert composed == decomposed, f"the spelling of {name!r} changes the document"


def takes_any_text(subject: Subject) -> None:
    """Whatever a buyer or organiser types is drawn, or refused by the name of its field; nothing else is raised."""
    renderer = subject.warmed()
    for words in HOSTILE:
        for request in with_words(words):
            try:
                renderer.render(request, no_check)
                notes = _notes_of(renderer, request)
                assert len(words) <= _TELLING or words not in "".join(notes), f"notes() quotes the order: {notes}"
            except AssertionError:
                raise
            except InvalidRequest as refused:
                if len(words) > _TELLING and words in str(refused):
                    raise AssertionError(f"the refusal quotes the order: {refused}") from refused
            except Exception as error:
                raise AssertionError(
                    f"{type(error).__name__} for {words!r}: draw it, or raise InvalidRequest"
                ) from error


def _notes_of(renderer: Renderer, request: RenderRequest) -> Sequence[str]:
    notes = getattr(renderer, "notes", None)
    return [str(note) for note in notes(request)] if callable(notes) else []


_TELLING = 4
"""Shorter text is found in any sentence by chance."""


def text_is_never_markup(subject: Subject) -> None:
    """What is typed comes out as it was typed: it makes no tag, no attribute, no reference, and nothing is left out.

    Read back are HTML, XML, JSON, plain text, archives of them, and PDF where pypdfium2 is installed.
    """
    renderer = subject.warmed()
    plain = _readings(renderer, PLAIN)
    for words in MARKUP:
        for usual, found in zip(plain, _readings(renderer, words), strict=True):
            if usual is not None and found is not None:
                _assert_is_text(words, found, usual)


def _readings(renderer: Renderer, words: str) -> list[Reading | None]:
    """Return what is read back of the documents with *words* in every field."""
    single, whole = saying(words)
    found: list[Reading | None] = []
    for request in (single, whole) if draws_orders(renderer) else (single,):
        try:
            found.append(read_back(renderer.render(request, no_check), renderer.content_type))
        except InvalidRequest as refused:
            raise AssertionError(f"{words!r} is refused: {refused}; it is on any keyboard, so draw it") from refused
        except Unreadable as broken:
            raise AssertionError(f"with {words!r} in every field, what it draws {broken}") from broken
    return found


def _assert_is_text(words: str, found: Reading, usual: Reading) -> None:
    for field in SHOWN:
        wanted = squeezed(marked(field, words))
        times = usual.text.count(squeezed(marked(field, PLAIN)))
        assert found.text.count(wanted) >= times, (
            f"{field} is not shown as it was typed when it is {words!r}: escape it, and leave nothing out"
        )
        is_quoted = "'" in words and '"' in words
        assert not (is_quoted and wanted in found.acting), (
            f"{field} stands as it was typed in a script, a style or an address: {words!r}"
        )
    new = sorted(" ".join(part) for part in found.shape ^ usual.shape)
    assert not new, f"{words!r} changes what the document is made of: {', '.join(new[:5])}"


def keeps_to_its_limits(subject: Subject) -> None:
    """What is far too long or far too many is refused by the name of its field, or drawn within bounds.

    It is asked in another process, for that can be ended if it never comes back.
    """
    try:
        said = elsewhere(subject, "try_far_too_much", patience_s=subject.patience_s)
    except subprocess.TimeoutExpired as late:
        at = (late.stdout or b"").decode(errors="replace").strip().rpartition("\n")[2]
        raise AssertionError(
            f"not done after {subject.patience_s:g} s with far too much in {at or 'its warm-up'}: "
            "refuse it with InvalidRequest, or give the subject more patience_s"
        ) from None
    problems = json.loads(said.rpartition("\n")[2])
    assert not problems, f"{'; '.join(problems[:5])}: raise InvalidRequest with the name of the field, or cut it off"


def try_far_too_much(subject: Subject) -> None:
    """Print each field before it is far too large, and what was wrong with what the renderer did, in JSON."""
    renderer = subject.warmed()
    sizes = [len(renderer.render(request, no_check)) for request in requests_for(renderer)]
    problems: list[str] = []
    for field, *requests in far_too_much(4 * subject.most_growth):
        print(field, flush=True)  # noqa: T201 - this is how it is told
        found = (
            _excess(renderer, field, request, at_most=size + subject.most_growth)
            for request, size in zip(requests, sizes, strict=False)
        )
        problems += filter(None, found)
    print(json.dumps(problems))  # noqa: T201 - as above


def _excess(renderer: Renderer, field: str, request: RenderRequest, *, at_most: int) -> str | None:
    """Say what is wrong with what becomes of a request in which *field* is far too large."""
    try:
        size = len(renderer.render(request, no_check))
    except InvalidRequest as refused:
        if field.rpartition(".")[2] not in str(refused):
            return f"far too much in {field} is refused without its name"
        return f"the refusal of {field} quotes it" if len(str(refused)) > _SENTENCE else None
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not what the contract says
        return f"{type(error).__name__} for far too much in {field}"
    return f"far too much in {field} makes {size:,} bytes where {at_most:,} are the most" if size > at_most else None


_SENTENCE = 1000
"""Characters that no refusal needs, and that no text that is far too long can be quoted in."""


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
        for request in with_words(words):
            watching.on = True
            try:
                renderer.render(request, no_check)
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
    asked = RenderRequest(order=order, position=None if draws_orders(renderer) else order.positions[0], locale="en")
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
    text_is_never_markup,
    keeps_to_its_limits,
    touches_nothing_outside,
    stops_when_it_is_told,
)
"""All checks, in the order in which they are best read."""
