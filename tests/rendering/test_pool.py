"""The pool: bounded, and distrustful of what renderers raise and return."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from stagedoor.cli import wiring
from stagedoor.errors import InvalidRequest, JobTimeout, LeaseLost, RendererBroken, RendererNotFound
from stagedoor.rendering.api import Check, RenderRequest
from stagedoor.rendering.key import content_key
from stagedoor.rendering.pool import RenderPool
from stagedoor.rendering.registry import Registry, check_candidates
from stagedoor.settings import Settings
from tests.rendering.orders import named
from tests.rendering.test_registry import Plain, candidate

REQUEST = named("Anna Geheim")


class Acting(Plain):
    """A renderer that does what it is told."""

    def __init__(self, act: Any) -> None:
        super().__init__()
        self.act = act

    def render(self, request: RenderRequest, check: Check) -> bytes:
        result: bytes = self.act(request, check)
        return result


def registry(renderer: Any) -> Registry:
    return check_candidates([candidate(renderer)], gil_is_enabled=lambda: False, free_threaded_build=True)


def pool(act: Any, *, slots: int = 8, **attributes: Any) -> RenderPool:
    renderer = Acting(act)
    for name, value in attributes.items():
        setattr(renderer, name, value)
    return RenderPool(registry(renderer), slots=slots)


def test_a_result_carries_type_suffix_and_the_key_known_before() -> None:
    made = pool(lambda request, check: b"ticket")
    result = made.render("plain", REQUEST)
    assert (result.content, result.content_type, result.suffix) == (b"ticket", "text/plain", ".txt")
    assert result.key == content_key(REQUEST, made.registry.get("plain"))


def test_an_unknown_renderer_is_named() -> None:
    with pytest.raises(RendererNotFound, match="ticket-pdf"):
        pool(lambda request, check: b"ticket").render("ticket-pdf", REQUEST)


def test_what_a_renderer_raises_never_quotes_the_order() -> None:
    """PDF libraries put the text that they choke on into their exceptions, and exceptions end in logs."""

    def act(request: RenderRequest, check: Check) -> bytes:
        raise ValueError(f"cannot parse {request.position}")

    with pytest.raises(RendererBroken) as caught:
        pool(act).render("plain", REQUEST)
    assert "builtins.ValueError in act" in str(caught.value)
    assert "Anna Geheim" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), MemoryError(), RecursionError("Anna Geheim")])
def test_whatever_a_renderer_raises_is_its_own_failure(error: BaseException) -> None:
    def act(request: RenderRequest, check: Check) -> bytes:
        raise error

    with pytest.raises(RendererBroken, match=type(error).__name__):
        pool(act).render("plain", REQUEST)


@pytest.mark.parametrize("error", [InvalidRequest("event.tz: unknown"), LeaseLost("lapsed"), JobTimeout("too long")])
def test_what_the_contract_allows_passes_through(error: Exception) -> None:
    def act(request: RenderRequest, check: Check) -> bytes:
        raise error

    with pytest.raises(type(error)) as caught:
        pool(act).render("plain", REQUEST)
    assert caught.value is error


def test_what_the_check_raises_passes_through_whatever_it_is() -> None:
    class Unwanted(Exception):
        pass

    def check() -> None:
        raise Unwanted

    with pytest.raises(Unwanted):
        pool(lambda request, check: check()).render("plain", REQUEST, check=check)


@pytest.mark.parametrize(
    "content, said",
    [
        (None, "returned NoneType, not bytes"),
        ("text", "returned str, not bytes"),
        (bytearray(b"x"), "returned bytearray, not bytes"),
        (b"", "returned no bytes at all"),
    ],
)
def test_what_is_not_bytes_is_refused(content: Any, said: str) -> None:
    with pytest.raises(RendererBroken, match=said):
        pool(lambda request, check: content).render("plain", REQUEST)


def test_notes_travel_with_the_result() -> None:
    made = pool(lambda request, check: b"ticket", notes=lambda request: ["holder: 1 replaced"])
    assert made.render("plain", REQUEST).notes == ("holder: 1 replaced",)


@pytest.mark.parametrize("policy", ["replace", "refuse"])
def test_a_shop_may_have_incomplete_documents_refused_by_a_setting(policy: str) -> None:
    noting = Acting(lambda request, check: b"ticket")
    noting.notes = lambda request: ["holder: 1 replaced"]  # type: ignore[attr-defined]  # optional in the contract
    settings = Settings.load(environ={"STAGEDOOR_MISSING_GLYPHS": policy})
    parts: Any = {"registry": registry(noting), "log": None}
    others: Any = {name: SimpleNamespace(**parts) for name in ("plugins", "book", "link", "events", "logs")}
    made = wiring._shop(wiring.Equipment(settings=settings, **others), lambda _name, _seconds: None).pool
    if policy == "replace":
        assert made.render("plain", REQUEST).notes == ("holder: 1 replaced",)
        return
    with pytest.raises(InvalidRequest, match="holder: 1 replaced"):
        made.render("plain", REQUEST)


def test_no_more_renders_at_once_than_slots() -> None:
    """Both places are taken at the same time, and then there is no third."""
    entered, leave = threading.Barrier(3, timeout=30), threading.Event()

    def act(request: RenderRequest, check: Check) -> bytes:
        entered.wait()
        leave.wait(30)
        return b"ticket"

    made = pool(act, slots=2)
    threads = [threading.Thread(target=made.render, args=("plain", REQUEST)) for _ in range(2)]
    for thread in threads:
        thread.start()
    entered.wait()
    assert not made._slots.acquire(blocking=False)
    leave.set()
    for thread in threads:
        thread.join()


def test_waiting_for_a_slot_ends_when_the_result_is_no_longer_wanted() -> None:
    entered, leave = threading.Event(), threading.Event()

    def act(request: RenderRequest, check: Check) -> bytes:
        entered.set()
        leave.wait(30)
        return b"ticket"

    def lost() -> None:
        raise LeaseLost("lapsed")

    made = pool(act, slots=1)
    thread = threading.Thread(target=made.render, args=("plain", REQUEST))
    thread.start()
    entered.wait(30)
    with pytest.raises(LeaseLost):
        made.render("plain", REQUEST, check=lost)
    leave.set()
    thread.join()


def test_a_failed_render_gives_its_slot_back() -> None:
    made = pool(lambda request, check: None, slots=1)
    for _ in range(3):
        with pytest.raises(RendererBroken):
            made.render("plain", REQUEST)


async def test_a_task_awaits_the_same_result() -> None:
    made = pool(lambda request, check: b"ticket")
    assert await made.render_async("plain", REQUEST) == made.render("plain", REQUEST)


async def test_a_cancelled_task_stops_the_renderer_at_its_next_check() -> None:
    entered = threading.Event()
    rounds = 0

    def act(request: RenderRequest, check: Check) -> bytes:
        nonlocal rounds
        entered.set()
        while True:
            rounds += 1
            check()

    made = pool(act)
    with trio.move_on_after(30) as patience:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.render_async, "plain", REQUEST)
            await trio.to_thread.run_sync(entered.wait, 30)
            nursery.cancel_scope.cancel()
    assert not patience.cancelled_caught
    assert rounds > 0


async def test_tasks_and_threads_share_the_slots() -> None:
    inside, most, lock = 0, 0, threading.Lock()

    def act(request: RenderRequest, check: Check) -> bytes:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        threading.Event().wait(0.001)
        with lock:
            inside -= 1
        return b"ticket"

    made = pool(act, slots=2)
    threads = [threading.Thread(target=made.render, args=("plain", REQUEST)) for _ in range(6)]
    for thread in threads:
        thread.start()
    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(made.render_async, "plain", REQUEST)
    for thread in threads:
        thread.join()
    assert most <= 2
