"""Runs renderers in a bounded number of threads, and trusts none of them.

A renderer is foreign code that holds a buyer's name. Two things follow. What it
raises never travels on: exceptions of PDF libraries quote the text that they
choke on, and exceptions end in logs. What it returns is looked at before
anybody publishes it.
"""

import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import attrs
import trio

from stagedoor.errors import InvalidRequest, JobTimeout, LeaseLost, RendererBroken
from stagedoor.rendering.api import Check, Rendered, Renderer, RenderRequest
from stagedoor.rendering.key import content_key
from stagedoor.rendering.pdf import pdf_problem
from stagedoor.rendering.registry import Registry

DEFAULT_SLOTS = 8

_WAIT_S = 0.1
"""How long to wait for a free slot before asking again whether the result is still wanted."""

_PASSED_THROUGH = (InvalidRequest, LeaseLost, JobTimeout, trio.Cancelled)
"""What a renderer, or the check it calls, may say; everything else is a fault of the renderer."""


def no_check() -> None:
    """Want the result, whatever happens: the check of callers that have no tenure to lose."""


class RenderPool:
    """At most *slots* renders at once in this process, from handler threads and trio tasks together.

    Args:
        registry: the renderers, warmed up.
        slots: how many renders may run at once.
        on_rendered: told of each finished render, in its thread: the renderer's name, and seconds.
        refuse_incomplete: refuse a document whose renderer notes that it had to replace or leave out something.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        slots: int = DEFAULT_SLOTS,
        on_rendered: Callable[[str, float], None] = lambda _name, _seconds: None,
        refuse_incomplete: bool = False,
    ) -> None:
        self._registry = registry
        self._on_rendered = on_rendered
        self._refuse_incomplete = refuse_incomplete
        self._slots = threading.BoundedSemaphore(slots)
        # Its own: trio's default limiter also serves name look-ups and file work,
        # which must not wait behind eight renders.
        self._limiter = trio.CapacityLimiter(slots)

    @property
    def registry(self) -> Registry:
        """The renderers that this pool runs."""
        return self._registry

    def render(self, name: str, request: RenderRequest, *, check: Check = no_check) -> Rendered:
        """Return the document that renderer *name* draws for *request*, drawn in this thread.

        Waits for a free slot; *check* is called while waiting and between pages.

        Raises:
            RendererNotFound: nothing of that name is installed.
            InvalidRequest: the order can never be drawn, or not completely where that is refused;
                permanent, names the field.
            RendererBroken: the renderer raised, or returned something else than it
                promised. The message quotes nothing of the order.
            Exception: whatever *check* raised: the result is no longer wanted.
        """
        renderer = self._registry.get(name)
        key = content_key(request, renderer)
        while not self._slots.acquire(timeout=_WAIT_S):
            check()
        try:
            began = time.perf_counter()
            rendered = _rendered(renderer, request, check=check, key=key)
            self._on_rendered(name, time.perf_counter() - began)
            if rendered.notes and self._refuse_incomplete:
                raise InvalidRequest("; ".join(rendered.notes))
            return rendered
        finally:
            self._slots.release()

    async def render_async(self, name: str, request: RenderRequest, *, check: Check = no_check) -> Rendered:
        """Return the document that renderer *name* draws for *request*, drawn in a worker thread.

        Raises:
            As `render`.

        **Cancellation**: safe at any point. A thread cannot be killed, so this
        waits until the renderer next calls its check, which then raises; nothing
        is left behind.
        """

        def check_both() -> None:
            trio.from_thread.check_cancelled()
            check()

        def work() -> Rendered:
            return self.render(name, request, check=check_both)

        return await trio.to_thread.run_sync(work, limiter=self._limiter)


@attrs.define
class _Watched:
    """A check that remembers what it raised, so that it is told apart from the renderer's own faults."""

    check: Callable[[], None]
    raised: BaseException | None = None

    def __call__(self) -> None:
        try:
            self.check()
        except BaseException as error:
            self.raised = error
            raise


def _rendered(renderer: Renderer, request: RenderRequest, *, check: Check, key: str) -> Rendered:
    watched = _Watched(check)
    try:
        content: object = renderer.render(request, watched)
        notes = _notes(renderer, request)
    except _PASSED_THROUGH:
        raise
    except BaseException as error:
        if error is watched.raised:
            raise
        # Also SystemExit and KeyboardInterrupt: in a plugin they are its failure and nobody else's.
        problem = f"renderer {renderer.name} {renderer.version} raised {_named(error)}"
    else:
        wrong = _content_problem(renderer, content)
        if wrong is None and isinstance(content, bytes):
            return Rendered(
                content=content,
                content_type=renderer.content_type,
                suffix=renderer.suffix,
                key=key,
                notes=notes,
            )
        problem = f"renderer {renderer.name} {renderer.version} {wrong}"
    # Outside every `except`: so the foreign exception is not even this one's context.
    raise RendererBroken(problem)


def _named(error: BaseException) -> str:
    """Say what was raised and where, without a word of what it says."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {frames[-1].name}, {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return (
        f"{type(error).__module__}.{type(error).__qualname__}{place}; its text is withheld, for it may quote the order"
    )


def _notes(renderer: Renderer, request: RenderRequest) -> tuple[str, ...]:
    notes: Any = getattr(renderer, "notes", None)
    return tuple(str(note) for note in notes(request)) if callable(notes) else ()


def _content_problem(renderer: Renderer, content: object) -> str | None:
    """Say what is wrong with what came back, or None."""
    if not isinstance(content, bytes):
        return f"returned {type(content).__name__}, not bytes"
    if not content:
        return "returned no bytes at all"
    return pdf_problem(content) if renderer.content_type == "application/pdf" else None
