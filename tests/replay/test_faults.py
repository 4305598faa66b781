"""A replay notices what it is there to notice: each fault of a handler or a fixture makes a difference."""

from pathlib import Path
from typing import Any

import attrs
import pytest

from stagedoor.core.handler import HandlerSpec, by_kind, handler, spec_of
from stagedoor.errors import Permanent, Retry
from stagedoor.handlers.refund_order import refund_order
from stagedoor.handlers.render_tickets import render_tickets
from stagedoor.order import Order, Position
from stagedoor.orders import OrderBook
from stagedoor.rendering.api import Rendered
from stagedoor.replay import Parts, PartsFor, ReplayResult, load_fixture, replay_fixture
from tests.replay.test_format import ENTRY, ORDER, write

pytestmark = pytest.mark.redis


@attrs.frozen
class Context:
    """What a handler gets here: the real order book, and a document that costs nothing."""

    orders: OrderBook
    ticket_renderer: str = "text"

    def check(self) -> None:
        return

    @property
    def log(self) -> "Context":
        return self

    def debug(self, event: str, **fields: Any) -> None:
        return

    def content_key(self, name: str, order: Order, position: Position) -> tuple[str, str, str]:
        return f"{order.version:064x}", ".txt", "text/plain"

    def render(self, name: str, order: Order, position: Position) -> Rendered:
        key, suffix, content_type = self.content_key(name, order, position)
        return Rendered(content=position.token.encode(), content_type=content_type, suffix=suffix, key=key)


def parts_of(*functions: Any) -> PartsFor:
    specs: list[HandlerSpec] = []
    for function in functions:
        spec = spec_of(function)
        assert spec is not None
        specs.append(spec)
    return lambda book: Parts(handlers=by_kind(specs), make_context=lambda job, held: Context(book))


@handler("render_tickets")
def do_nothing(job: Any, ctx: Any) -> None:
    """Return at once."""


@handler("refund_order")
def forget_the_refund(job: Any, ctx: Any) -> None:
    """Return at once."""


@handler("render_tickets")
def give_up(job: Any, ctx: Any) -> None:
    raise Permanent("out of paper")


@handler("render_tickets")
def come_back_later(job: Any, ctx: Any) -> None:
    raise Retry(after=3600)


@handler("render_tickets")
async def draw_in_a_task(job: Any, ctx: Any) -> None:
    """An async handler; its order book is the plain one here, its document is awaited."""
    await ctx.render("text")


def play(folder: Path, parts: PartsFor, url: str, *, limit_s: float = 20.0) -> ReplayResult:
    return replay_fixture(load_fixture(folder), parts, redis_url=url, limit_s=limit_s)


def said(result: ReplayResult) -> list[str]:
    return [str(difference) for difference in result.differences]


def test_a_good_handler_makes_no_difference(tmp_path: Path, redis_url: str) -> None:
    assert said(play(write(tmp_path, ENTRY_OF_7), parts_of(render_tickets), redis_url)) == []


ENTRY_OF_7 = {"entry": {**ENTRY["entry"], "outbox_id": "1", "request_id": "", "trace": ""}}


def test_work_that_was_not_done_is_noticed(tmp_path: Path, redis_url: str) -> None:
    result = play(write(tmp_path, ENTRY_OF_7), parts_of(do_nothing), redis_url)
    assert said(result) == ["order 7: positions with a valid ticket: expected 1, found none"]


def test_a_dead_letter_that_nobody_expects_is_noticed_with_its_line_and_error(tmp_path: Path, redis_url: str) -> None:
    result = play(write(tmp_path, "# words", ENTRY_OF_7), parts_of(give_up), redis_url)
    assert "dead letter: expected none, found permanent of line 2 (Permanent: out of paper)" in said(result)


def test_a_dead_letter_that_is_not_there_is_noticed(tmp_path: Path, redis_url: str) -> None:
    expected = {"orders": {"7": {"status": "placed", "valid": [1]}}, "dead": [{"line": 1, "reason": "poison"}]}
    result = play(write(tmp_path, ENTRY_OF_7, expected=expected), parts_of(render_tickets), redis_url)
    assert said(result) == ["dead letter: expected poison of line 1, found none like it"]


def test_a_ticket_that_should_be_void_is_noticed(tmp_path: Path, redis_url: str) -> None:
    refund = {"entry": {**ENTRY_OF_7["entry"], "kind": "refund_order", "outbox_id": "2"}}
    expected = {"orders": {"7": {"status": "refunded", "valid": [], "void": 1}}}
    folder = write(tmp_path, ENTRY_OF_7, {"refund": 7}, refund, expected=expected)
    assert said(play(folder, parts_of(render_tickets, refund_order), redis_url)) == []
    assert said(play(folder, parts_of(render_tickets, forget_the_refund), redis_url)) == [
        "order 7: void tickets: expected 1, found 0",
        "order 7: what is wrong: expected none, found a valid ticket of a refunded order",
    ]


def test_what_is_not_at_rest_in_time_is_noticed(tmp_path: Path, redis_url: str) -> None:
    result = play(write(tmp_path, ENTRY_OF_7), parts_of(come_back_later), redis_url, limit_s=0.5)
    assert any("wait for a worker that knows their kind" in line for line in said(result))


def test_a_kind_that_nobody_knows_is_named(tmp_path: Path, redis_url: str) -> None:
    thanks = {"entry": {**ENTRY_OF_7["entry"], "kind": "thank_you", "outbox_id": "2"}}
    result = play(write(tmp_path, ENTRY_OF_7, thanks), parts_of(render_tickets), redis_url)
    [line] = said(result)
    assert line.startswith("entries that wait for a worker that knows their kind, by line: expected none, found 2 (of ")
    assert "(of thank_you: --plugins names" in line


def test_a_hook_that_is_never_reached_is_noticed(tmp_path: Path, redis_url: str) -> None:
    step = {**ENTRY_OF_7, "at_render": [{"reissue": 7}]}
    result = play(write(tmp_path, ENTRY_OF_7, step, ENTRY_OF_7), parts_of(render_tickets), redis_url)
    assert "line 2: at_render: expected to be reached, found that it was not" in said(result)


def test_void_tickets_are_counted_in_the_given_order_only(tmp_path: Path, redis_url: str) -> None:
    expected = {"orders": {"7": {"status": "placed", "valid": [1], "void": 3}}}
    fixture = load_fixture(write(tmp_path, ENTRY_OF_7, expected=expected))
    parts = parts_of(render_tickets)
    assert said(replay_fixture(fixture, parts, redis_url=redis_url)) == ["order 7: void tickets: expected 3, found 0"]
    assert said(replay_fixture(fixture, parts, redis_url=redis_url, seed=1)) == []


def test_an_async_handler_has_its_hooks_and_its_crashes_too(tmp_path: Path, redis_url: str) -> None:
    expected = {"orders": {"7": {"status": "refunded", "valid": []}}}
    steps = {**ENTRY_OF_7, "at_start": [{"crash": 1}], "at_render": [{"refund": 7}], "at_end": [{"crash": 2}]}

    @attrs.frozen
    class Awaited:
        orders: OrderBook

        async def render(self, name: str) -> str:
            return name

    spec = spec_of(draw_in_a_task)
    assert spec is not None
    result = play(
        write(tmp_path, steps, expected=expected),
        lambda book: Parts(handlers=by_kind([spec]), make_context=lambda job, held: Awaited(book)),
        redis_url,
    )
    assert said(result) == []
    assert result.crashes == 3


def test_a_replay_leaves_nothing_on_redis(tmp_path: Path, redis_url: str, redis_server: Any) -> None:
    before = set(redis_server.cli("KEYS", "replay-*"))
    play(write(tmp_path, ENTRY_OF_7, {**ENTRY_OF_7, "at_end": [{"crash": 1}]}), parts_of(render_tickets), redis_url)
    assert set(redis_server.cli("KEYS", "replay-*")) == before


def test_a_dead_worker_writes_nothing_more(tmp_path: Path, redis_url: str) -> None:
    """Two jobs in hand, one takes the worker along: the other's thread gets no further call through."""
    orders = [ORDER, {**ORDER, "order_id": 8}]
    expected = {"orders": {str(order_id): {"status": "placed", "valid": [1], "void": 0} for order_id in (7, 8)}}
    other = {"entry": {**ENTRY_OF_7["entry"], "order_id": "8", "outbox_id": "2"}}
    steps = [{**ENTRY_OF_7, "at_render": [{"crash": 1}]}, other]
    result = play(write(tmp_path, *steps, orders=orders, expected=expected), parts_of(render_tickets), redis_url)
    assert said(result) == []
    assert result.crashes == 1
