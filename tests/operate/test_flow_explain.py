"""``explain`` of a flow's call: where it is, what it has done, and what somebody has to do, if anybody."""

import re

import pytest

from stagedoor.broker.inspection import MOST_DELAYED, PAGE
from stagedoor.broker.publishing import OutboxEntry
from stagedoor.core.call import CallOutcome, CallState, Finish, Kind, Park, Sleep, StepState, Wait
from stagedoor.core.codec import Fields, pack
from stagedoor.core.entry import MAX_BYTES
from stagedoor.core.outcome import Dead, Reason, UnknownKind
from stagedoor.core.tenure import Stream
from stagedoor.orders import OrderBook
from stagedoor.relay import entry_of
from tests.broker.flow_harness import calls_of, done, is_now, new_call, set_field, started, take_one
from tests.broker.harness import RedisHarness, job, settled
from tests.cli.test_order import line
from tests.operate.conftest import Run

pytestmark = pytest.mark.redis
LATER = 4_102_444_800.0


def test_a_call_that_was_started_waits_for_a_worker_and_so_does_its_entry(real: RedisHarness, command: Run) -> None:
    calls_of(real).start(new_call(metadata={"order": "7"}))
    call, entry = command("explain", "c", "--json").data["accounts"]
    assert (call["what"], call["id"]) == ("call", "c")
    assert call["where"] == "call c of the flow f is waiting, for a worker"
    assert call["history"][1:] == ["order 7"]
    assert call["next"] == "nothing until a worker runs: there is none"
    assert "of the stream waits unread" in entry["where"]
    real.worker()
    assert command("explain", "c", "--json").data["accounts"][0]["next"] == "a worker runs it further"
    by_entry = command("explain", entry["id"], "--json").data["accounts"]
    assert [one["id"] for one in by_entry] == ["c", entry["id"]]


def test_a_call_of_a_flow_that_nobody_knows_says_whom_it_waits_for(real: RedisHarness, command: Run) -> None:
    worker = real.worker()
    calls_of(real, worker).start(new_call())
    worker.settle(1, [settled(take_one(worker), UnknownKind(60, 1))])
    call, entry = command("explain", "c", "--json").data["accounts"]
    assert call["where"] == "call c of the flow f is waiting, for a worker that knows its flow"
    assert "delayed" in entry["where"]
    assert "handed back 1 time by workers that do not know it" in "; ".join(entry["history"])


def test_a_kind_that_no_worker_knows_is_named_by_status_and_doctor(real: RedisHarness, command: Run) -> None:
    worker = real.worker()
    real.client.xadd(real.keys.stream, {"kind": "thank_yu", "order_id": "7", "outbox_id": "1"})
    said = "1 job waits for a worker that knows thank_yu"
    for hops, is_told in ((2, False), (3, True)):
        worker.settle(hops, [settled(take_one(worker), UnknownKind(0, hops))])
        assert (f"! {said}: is a module missing in plugins?" in command("status").out) is is_told
        findings = command("doctor", "--json").data["findings"]
        assert (("wrong", said) in [(one["level"], one["seen"]) for one in findings]) is is_told
        worker.promote()


def test_a_flood_of_kinds_that_no_worker_knows_is_a_few_lines(real: RedisHarness, command: Run) -> None:
    """More than are looked at, and one of which there are many; the exit codes stay what they were."""
    for number in range(1200):
        fields = job("thank_yu" if number % 3 == 0 else f"kind{number}", hops="3", origin="1-1")
        body = pack([b"1", *(part for pair in fields for part in pair)])
        real.put_delayed(f"1:{number}-1", body)
    said = command("status")
    lines = [one for one in said.out.splitlines() if "for a worker that knows" in one or "more kinds" in one]
    first = "among the first 1,000 delayed jobs"
    assert lines[0] == f"! 332 jobs wait for a worker that knows thank_yu, {first}: is a module missing in plugins?"
    assert lines[-1].startswith(f"! 666 jobs of 666 more kinds wait for workers that know them, {first}")
    assert (len(lines), said.code) == (4, 0)
    found = command("doctor", "--json")
    kinds = [one["seen"] for one in found.data["findings"] if one["about"] == "kinds"]
    assert (len(kinds), found.code) == (4, 1)
    assert all(first in seen for seen in kinds)
    real.client.zremrangebyrank(real.keys.delayed, MOST_DELAYED, -1)
    assert "jobs wait for a worker that knows thank_yu: " in command("status").out, "there are no others"


def test_bodies_of_delayed_jobs_are_read_within_bounds() -> None:
    assert PAGE * MAX_BYTES < 8e6, "in one reply"
    assert MOST_DELAYED * MAX_BYTES < 80e6, "for one look"


def test_a_call_that_runs_is_in_somebodys_hands(real: RedisHarness, command: Run) -> None:
    _, calls, claimed, right = started(real)
    calls.record_step(right, done("reserve"))
    calls.record_step(right, is_now("render", StepState.RETRY, place=2, attempts=2, error="OSError: no disk"))
    call, entry = command("explain", "c", "--json").data["accounts"]
    assert call["where"] == "call c of the flow f is running"
    assert call["history"][1:] == [
        "order 7",
        "1 of 2 recorded steps are done",
        "step 'render' is tried again after 2 attempts: OSError: no disk",
    ]
    assert call["next"] == "a worker does what it can now, and puts it to rest or ends it"
    assert entry["id"] == claimed.entry.entry_id
    assert "is in the hands of w " in entry["where"]


def test_a_call_that_waits_for_a_signal_says_how_it_is_sent(real: RedisHarness, command: Run) -> None:
    _, calls, _, right = started(real)
    waiting = is_now("paid", StepState.WAITING, kind=Kind.SIGNAL, due_at=LATER, more={"signal": "paid"})
    calls.take_signal(right, "paid", taken=done("paid"), timed_out=done("paid"), waiting=waiting)
    calls.end_pass(right, Wait(waiting_for="the signal 'paid'", until=LATER))
    [call] = command("explain", "c", "--json").data["accounts"]
    assert call["where"] == "call c of the flow f is waiting, for the signal 'paid'"
    assert re.fullmatch(
        r"it goes on when somebody says python -m stagedoor flow signal c paid VALUE, "
        r"and else a worker goes on with it in [\d,]+ d",
        call["next"],
    )


@pytest.mark.parametrize(
    "due_ms,said",
    [
        ("4102444800000", r"a worker goes on with it in [\d,]+ d"),
        ("1", ".*; it is due for so long only when none runs"),
    ],
)
def test_a_call_that_sleeps_says_until_when(real: RedisHarness, command: Run, due_ms: str, said: str) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, Sleep(until=LATER, waiting_for="sleep 'grace'"))
    set_field(real, ".due", due_ms)
    [call] = command("explain", "c", "--json").data["accounts"]
    assert call["where"] == "call c of the flow f is sleeping, for sleep 'grace'"
    assert re.fullmatch(said, call["next"])


def test_a_parked_call_says_what_to_do(real: RedisHarness, command: Run) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, Park(reason="changed", error="expected 1. step 'a'"))
    said = command("explain", "c")
    assert said.code == 0
    assert "call c of the flow f is parked: changed: expected 1. step 'a'" in said.out
    assert "flow resume c, or flow cancel" in said.out


def test_a_call_whose_entry_died_shows_the_dead_letter_too(real: RedisHarness, command: Run) -> None:
    worker, _, claimed, _ = started(real)
    worker.settle(1, [settled(claimed, Dead(Reason.POISON, "5 processes vanished"))])
    call, letter = command("explain", "c", "--json").data["accounts"]
    assert (call["what"], letter["what"]) == ("call", "dead")
    assert "is parked: " in call["where"]


def test_an_outbox_row_that_started_a_call_leads_to_it(
    real: RedisHarness, command: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("tickets")
    with OrderBook.open("sqlite:///stagedoor.db", tickets_dir=folder, issued_by="f") as book:
        order = book.place(line())
        [row] = book.outbox.pending()
        entry: OutboxEntry = entry_of(row)
        _, [reply] = real.publishing().publish(book.outbox.book_id(), [entry])
        book.outbox.mark_published([(row.outbox_id, reply.entry_id, reply.seq)])
    worker = real.worker()
    claimed = worker.read(1).claimed[0]
    calls_of(real).start(new_call(f"outbox-{row.outbox_id}"))
    worker.settle(1, [settled(claimed)])
    for asked in (str(order.order_id), reply.entry_id):
        assert [one["id"] for one in command("explain", asked, "--json").data["accounts"]] == ["outbox-1"]


@pytest.mark.parametrize("state", [state for state in CallState if state.has_ended])
def test_a_call_that_has_ended_says_how(real: RedisHarness, command: Run, state: CallState) -> None:
    _, calls, _, right = started(real)
    error = "" if state is CallState.DONE else "ValueError: no"
    calls.end_pass(right, Finish(outcome=CallOutcome(state=state, error=error)))
    [call] = command("explain", "c", "--as", "call", "--json").data["accounts"]
    words = {CallState.DONE: "is done", CallState.FAILED: "has failed: ValueError: no"}
    assert call["where"] == f"call c of the flow f {words.get(state, f'was {state.value}: ValueError: no')}"
    assert call["next"].startswith("nothing; ")
    assert real.length() == real.length(Stream.CRITICAL) == 0


def test_a_call_that_is_not_there(real: RedisHarness, command: Run) -> None:
    said = command("explain", "nobody", "--as", "call")
    assert (said.code, said.err) == (1, "")
    assert said.out.startswith("there is no call nobody: ")
    assert command("explain", "no body", "--as", "call").code == 2


def test_an_entry_that_names_a_call_by_an_id_that_is_none_is_explained_all_the_same(
    real: RedisHarness, command: Run
) -> None:
    fields: Fields = ((b"kind", b"f"), (b"call_id", b"\xff no id"))
    [account] = command("explain", real.add(fields), "--json").data["accounts"]
    assert account["what"] == "entry"


@pytest.mark.parametrize(
    "field, value",
    [
        (".created", "abc"),
        (".created", "9" * 30),
        (".due", "-1"),
        (".epoch", "x"),
        (".misfit", "x y"),
        (".outcome", "weird"),
        (".state", "weird"),
        ("a", "garbage"),
        ("a", "done 1 " + "[" * 100_000),
        ("a", 'done 1 {"kind":"step","place":"x"}'),
        ("a", 'done 1 {"kind":"step","attempts":"x"}'),
        ("a", 'waiting 1 {"kind":"signal","place":1,"due_at":1e300}'),
        ("a", 'done 1 {"kind":"step","place":1,"more":[1]}'),
    ],
)
def test_a_call_that_somebody_has_written_into_says_so(
    real: RedisHarness, command: Run, field: str, value: str
) -> None:
    calls_of(real).start(new_call())
    real.client.hset(real.keys.call_status("c"), field, value)
    for words in (("flow", "show", "c"), ("flow", "show", "--json", "c"), ("explain", "c")):
        said = command(*words)
        assert said.code == 1
        assert "call c: what is kept of it cannot be read" in said.err


def test_a_value_that_is_no_json_says_so(real: RedisHarness, command: Run) -> None:
    calls_of(real).start(new_call())
    real.client.hset(real.keys.call_status("c"), "a", 'done 1 {"kind":"step","place":1}')
    real.client.hset(real.keys.call_meta("c"), "v:a", "no JSON")
    assert "cannot be read" in command("flow", "show", "--json", "c").err
