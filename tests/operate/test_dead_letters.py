"""Dead letters: shown safely, put back once and whole, never in one long call."""

import re
import threading
from typing import Any

import pytest

from stagedoor.broker.calls import Calls, Told
from stagedoor.broker.dead_letters import PAGE, DeadLetters, letter_of, problem_of, requeued_fields
from stagedoor.core.call import CallState
from stagedoor.core.codec import Fields, pack_fields
from stagedoor.core.entry import MAX_BYTES, MAX_FIELDS, Entry
from stagedoor.core.job import parse_job
from stagedoor.core.outcome import Dead, Reason
from stagedoor.core.tenure import Stream
from stagedoor.errors import BrokerUnavailable
from tests.broker.flow_harness import begun, calls_of, set_field, started, take_one
from tests.broker.harness import RedisHarness, job, settled
from tests.operate.conftest import Run

pytestmark = pytest.mark.redis


def bury(real: RedisHarness, *fields: Fields, reason: Reason = Reason.PERMANENT, error: str = "no") -> list[str]:
    """Have a worker make dead letters of entries with these fields; returns the letters' ids."""
    worker = real.worker("gravedigger")
    for each in fields:
        real.add(each)
    before = {dead_id for dead_id, _ in real.command("XRANGE", real.keys.dead, "-", "+")}
    for batch in range(1, len(fields) // 400 + 2):
        claimed = worker.read(400).claimed
        worker.settle(batch, [settled(one, Dead(reason, error)) for one in claimed])
    worker.retire()
    after = [dead_id for dead_id, _ in real.command("XRANGE", real.keys.dead, "-", "+")]
    return [dead_id.decode() for dead_id in after if dead_id not in before]


def letters_of(real: RedisHarness, **options: Any) -> DeadLetters:
    return DeadLetters(real.link, real.keys, **options)


def entries(real: RedisHarness, stream: Stream = Stream.JOBS) -> list[dict[bytes, bytes]]:
    return [dict(fields) for fields in real.state().of(stream).entries.values()]


# -- putting back --------------------------------------------------------------------------


def test_a_job_begins_anew_with_its_own_fields(either: RedisHarness) -> None:
    """First attempt, no crashes, its origin, what it does not know kept, and counted as put back once more."""
    before = job(attempt="5", crashes="3", hops="7", origin="5-5", requeued="1", seat="C 8")
    [dead_id] = bury(either, before)
    letters = letters_of(either)
    [done] = letters.requeue([one for one in letters.find([dead_id]) if one])
    assert (done.dead_id, done.problem) == (dead_id, "")
    state = either.state()
    assert list(state.jobs.entries) == [done.entry_id]
    [fields] = entries(either)
    expected = dict(job(attempt="1", origin="5-5", requeued="2", seat="C 8"))
    assert fields == expected
    assert state.dead == ()


def test_the_first_entry_id_becomes_the_origin_so_that_the_age_stays(real: RedisHarness) -> None:
    entry_id = real.add(job())
    worker = real.worker()
    worker.settle(1, [settled(one, Dead(Reason.ATTEMPTS, "x")) for one in worker.read(1).claimed])
    letters = letters_of(real)
    letters.requeue(list(letters.newest_first()))
    [fields] = entries(real)
    assert fields[b"origin"] == entry_id.encode()
    assert parse_job(Entry(Stream.JOBS, "9-9", tuple(fields.items()))).attempt == 1


def test_a_continuation_goes_back_to_the_critical_stream(real: RedisHarness) -> None:
    real.add(job(), Stream.CRITICAL)
    worker = real.worker()
    worker.settle(1, [settled(one, Dead(Reason.PERMANENT, "x")) for one in worker.read(1).claimed])
    letters = letters_of(real, stream_maxlen=0)
    [done] = letters.requeue(list(letters.newest_first()))
    assert done.entry_id
    assert len(entries(real, Stream.CRITICAL)) == 1
    assert entries(real) == []


def test_a_second_click_moves_nothing(real: RedisHarness) -> None:
    bury(real, job())
    letters = letters_of(real)
    found = list(letters.newest_first())
    [first], [second] = letters.requeue(found), letters.requeue(found)
    assert first.entry_id
    assert not second.entry_id
    assert "put back or dropped meanwhile" in second.problem
    assert len(entries(real)) == 1


def test_two_operators_put_each_job_back_once(real: RedisHarness) -> None:
    bury(real, *(job(outbox_id=str(number)) for number in range(1, 61)))
    letters = letters_of(real)
    found = list(letters.newest_first())
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.extend(letters.requeue(found))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(bool(one.entry_id) for one in answers) == 60
    assert len({fields[b"outbox_id"] for fields in entries(real)}) == len(entries(real)) == 60


def test_nothing_is_put_back_into_a_full_stream(real: RedisHarness) -> None:
    bury(real, *(job(outbox_id=str(number)) for number in range(1, 6)))
    for _ in range(93):
        real.add(job())
    letters = letters_of(real, stream_maxlen=100)
    done = letters.requeue(list(letters.newest_first()))
    assert [one.is_full for one in done] == [False, False, True, True, True]
    assert (real.length(), len(real.state().dead)) == (95, 3)


def test_at_maxmemory_nothing_is_put_back_and_nothing_lost(start_redis: Any) -> None:
    server = start_redis()
    real = RedisHarness(server.url, "jobs", protocol=3)
    bury(real, job())
    letters = letters_of(real)
    found = list(letters.newest_first())
    real.command("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(BrokerUnavailable, match=r"OOM|OutOfMemory"):
        letters.requeue(found)
    assert letters.drop(["1-1"]) == [False], "dropping makes room, so it is never refused"
    real.command("CONFIG", "SET", "maxmemory", "0")
    assert letters.requeue(found)[0].entry_id
    real.close()


@pytest.mark.parametrize(
    "fields,reason,said",
    [
        (((b"foo", b"bar"),), Reason.MALFORMED, "it makes no job and never will: kind: the field is missing"),
        ((*job(), (b"kind", b"again")), Reason.MALFORMED, "it makes no job and never will"),
        ((*job(), (b"note", b"x" * (MAX_BYTES + 10))), Reason.MALFORMED, "bytes of its fields were kept"),
    ],
)
def test_what_can_never_run_is_refused_and_stays(real: RedisHarness, fields: Fields, reason: Reason, said: str) -> None:
    bury(real, fields, reason=reason)
    letters = letters_of(real)
    [done] = letters.requeue(list(letters.newest_first()))
    assert (done.entry_id, len(real.state().dead)) == ("", 1)
    assert said in done.problem


def test_a_trimmed_entry_cannot_be_put_back_and_the_reason_says_what_can_be_done() -> None:
    letter = letter_of("1-1", ((b"reason", b"trimmed"), (b"stream", b"1"), (b"entry_id", b"5-5"), (b"fields", b"")))
    assert "issued again" in problem_of(letter)


def test_a_job_with_as_many_fields_as_allowed_can_still_be_put_back() -> None:
    fields = (*job(), *((f"f{n}".encode(), b"") for n in range(MAX_FIELDS - 5)))
    letter = letter_of("1-1", ((b"stream", b"1"), (b"entry_id", b"5-5"), (b"fields", pack_fields(fields))))
    assert problem_of(letter) == ""
    assert len(requeued_fields(letter)) == MAX_FIELDS + 3


@pytest.mark.parametrize("raw", [(), ((b"fields", b"9:abc"),), ((b"fields_bytes", b"9" * 40), (b"stream", b"7"))])
def test_a_letter_that_somebody_else_wrote_is_shown_and_refused(raw: Fields) -> None:
    letter = letter_of("1-1", raw)
    assert problem_of(letter)
    assert letter.fields == ()


# -- all of them ----------------------------------------------------------------------------


def test_all_are_put_back_in_bounded_calls(real: RedisHarness, command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    bury(real, *(job(outbox_id=str(number)) for number in range(1, 251)))
    sizes: list[int] = []
    requeue = DeadLetters.requeue

    def spy(self: DeadLetters, letters: Any) -> Any:
        sizes.append(len(letters))
        return requeue(self, letters)

    monkeypatch.setattr(DeadLetters, "requeue", spy)
    said = command("dead", "requeue", "--all", "--json")
    assert (said.code, len(said.data["requeued"]), said.data["refused"]) == (0, 250, [])
    assert sizes == [PAGE, PAGE, 50]
    assert [int(fields[b"outbox_id"]) for fields in entries(real)] == list(range(1, 251))


def test_a_job_that_dies_again_meanwhile_is_not_met_a_second_time(real: RedisHarness) -> None:
    bury(real, *(job(outbox_id=str(number)) for number in range(1, 151)))
    letters = letters_of(real)
    seen = 0
    for page in letters.oldest_first():
        seen += len(page)
        letters.requeue(page)
        worker = real.worker("killer")
        claimed = worker.read(400).claimed
        worker.settle(1, [settled(one, Dead(Reason.PERMANENT, "again")) for one in claimed])
        worker.retire()
    assert seen == 150
    assert len(real.state().dead) == 150


def test_only_those_of_a_reason_and_kind(real: RedisHarness, command: Run) -> None:
    bury(real, job("a"), job("b"), reason=Reason.ATTEMPTS)
    bury(real, job("a"), job("b"), reason=Reason.POISON)
    said = command("dead", "requeue", "--all", "--reason", "poison", "--kind", "b", "--json")
    assert len(said.data["requeued"]) == 1
    assert [fields[b"kind"] for fields in entries(real)] == [b"b"]
    left = {(letter["reason"], letter["kind"]) for letter in command("dead", "list", "--json").data["dead"]}
    assert left == {("attempts", "a"), ("attempts", "b"), ("poison", "a")}


def test_a_full_stream_ends_the_run_which_is_taken_up_later(real: RedisHarness, command: Run) -> None:
    bury(real, *(job(outbox_id=str(number)) for number in range(1, 151)))
    said = command("dead", "requeue", "--all", "--stream-maxlen", "100")
    assert said.code == 1
    assert "95 jobs put back, 5 not" in said.out
    assert "give the same command again" in said.out
    real.client.xtrim(real.keys.stream, maxlen=0)
    assert "55 jobs put back" in command("dead", "requeue", "--all").out


# -- the command ------------------------------------------------------------------------------


def test_a_second_requeue_says_that_it_was_put_back_already(real: RedisHarness, command: Run) -> None:
    [dead_id] = bury(real, job())
    assert command("dead", "requeue", dead_id).out == "1 job put back\n"
    again = command("dead", "requeue", dead_id)
    assert again.code == 1
    assert "put back or dropped already" in again.out


def test_letters_are_listed_newest_first_page_after_page(real: RedisHarness, command: Run) -> None:
    ids = bury(real, *(job(order_id=str(number)) for number in range(1, 6)))
    first = command("dead", "list", "--limit", "2", "--json").data
    assert [letter["id"] for letter in first["dead"]] == [ids[4], ids[3]]
    assert first["more"] is True
    rest = command("dead", "list", "--limit", "3", "--before", ids[3], "--json").data
    assert [letter["order_id"] for letter in rest["dead"]] == ["3", "2", "1"]
    assert rest["more"] is False


def test_nothing_in_a_letter_drives_the_terminal(real: RedisHarness, command: Run) -> None:
    evil = "ok\n2026 INFO forged\r\x1b[2J\u2028\x85"
    ids = bury(real, job("print", note=evil), error=evil)
    for said in (command("dead", "list"), command("dead", "show", ids[0])):
        assert said.code == 0
        assert "\x1b" not in said.out
        assert not {"\r", "\u2028", "\x85"} & set(said.out)
        assert not any(line.startswith("2026 INFO") for line in said.out.splitlines())
        assert "\\n2026 INFO forged\\r\\x1b[2J\\u2028\\x85" in said.out


def test_show_has_all_that_is_kept(real: RedisHarness, command: Run) -> None:
    real.add(((b"kind", b"\xff\xfe"), (b"kind", b"two")))
    worker = real.worker("w")
    worker.settle(1, [settled(one, Dead(Reason.MALFORMED, "bad")) for one in worker.read(1).claimed])
    [letter] = command("dead", "list", "--json").data["dead"]
    data = command("dead", "show", letter["id"], "--json").data
    assert data["fields"] == [["kind", "\\xff\\xfe"], ["kind", "two"]]
    assert (data["reason"], data["consumer"], data["deliveries"], data["stream"]) == ("malformed", "w", "1", "jobs")
    assert "never will" in data["requeue_problem"]


def test_show_also_has_what_is_empty(real: RedisHarness, command: Run) -> None:
    [dead_id] = bury(real, (*job(), (b"", b"")))
    said = command("dead", "show", dead_id).out
    assert re.search(r"^request_id +\(empty\)$", said, re.MULTILINE)
    assert re.search(r"^\(empty\) +\(empty\)$", said, re.MULTILINE)


def test_crashes_are_shown(real: RedisHarness, command: Run) -> None:
    real.add(job())
    for number in range(2):
        real.worker(f"w{number}", incarnation=f"dead-{number}").read(1)
        real.lapse(f"w{number}")
        real.worker("sweeper").sweep()
        real.worker("sweeper").sweep()
        real.lapse("sweeper")
    worker = real.worker("last")
    worker.settle(1, [settled(one, Dead(Reason.POISON, "x")) for one in worker.read(1).claimed])
    [letter] = command("dead", "list", "--json").data["dead"]
    history = command("dead", "show", letter["id"], "--json").data["history"]
    assert [line.split(" ", 1)[1] for line in history] == ["w0 dead-0", "w1 dead-1"]


def test_dropping_is_for_good_and_says_what_was_not_there(real: RedisHarness, command: Run) -> None:
    ids = bury(real, job(), job())
    said = command("dead", "drop", ids[0], "1-1", "--json")
    assert (said.code, said.data) == (1, {"dropped": [ids[0]], "gone": ["1-1"]})
    assert command("dead", "drop", "--all").code == 2, "nobody has said yes"
    assert len(real.state().dead) == 1
    assert command("dead", "drop", "--all", "--yes").out == "1 job dropped\n"
    assert (real.state().dead, entries(real)) == ((), [])


@pytest.mark.parametrize("verb", ["list", "requeue --all", "drop --all --yes"])
def test_a_reason_that_there_is_not_is_refused(command: Run, verb: str) -> None:
    said = command("dead", *verb.split(), "--reason", "permanentt")
    assert said.code == 2
    assert "'permanent'" in said.err


@pytest.mark.parametrize(
    "words", [["requeue"], ["requeue", "--all", "1-1"], ["drop", "1-1", "--kind", "a"], ["requeue", "1"], ["show", "x"]]
)
def test_words_that_do_not_fit_are_refused(command: Run, words: list[str]) -> None:
    assert command("dead", *words).code == 2


def test_an_unknown_letter_is_exit_code_1(command: Run) -> None:
    assert command("dead", "show", "1-1").code == 1
    assert command("dead", "list").out == "no dead letters\n"


# -- letters about calls of flows ----------------------------------------------------------


def _bury_call(real: RedisHarness) -> tuple[Calls, DeadLetters]:
    """Start a call and let its entry die, which parks it."""
    worker, calls, claimed, _ = started(real)
    worker.settle(1, [settled(claimed, Dead(Reason.POISON, "x"))])
    assert state_of(calls) is CallState.PARKED
    return calls, letters_of(real)


def state_of(calls: Calls) -> CallState | None:
    journal = calls.show("c")
    return None if journal is None else journal.state


def test_a_parked_call_goes_on_through_its_letter(real: RedisHarness) -> None:
    calls, letters = _bury_call(real)
    counted = calls.counts()
    [done] = letters.requeue(list(letters.newest_first()))
    assert (done.problem, letters.count()) == ("", 0)
    journal = calls.show("c")
    assert journal is not None
    assert (journal.state, journal.parked_reason, journal.parked_error) == (CallState.WAITING, "", "")
    assert calls.resume("c") is Told.NOT_PARKED
    assert calls.counts() == counted | {CallState.PARKED: 0, CallState.WAITING: 1}
    worker = real.worker("other")
    again = take_one(worker)
    assert again.entry.entry_id == done.entry_id
    begun(calls_of(real, worker), again)


@pytest.mark.parametrize("how, said", [("resumed", "not parked"), ("ended", "has ended"), ("gone", "not there")])
def test_a_letter_whose_call_needs_it_no_more_stays_and_says_so(real: RedisHarness, how: str, said: str) -> None:
    calls, letters = _bury_call(real)
    match how:
        case "resumed":
            calls.resume("c")
        case "ended":
            set_field(real, ".state", "done")
        case _:
            real.client.delete(real.keys.call_status("c"))
    added = real.state()
    [done] = letters.requeue(list(letters.newest_first()))
    assert said in done.problem
    assert (real.state(), letters.count()) == (added, 1)


def test_two_letters_of_one_call_make_one_entry_and_hinder_no_job(real: RedisHarness) -> None:
    _, letters = _bury_call(real)
    [letter] = letters.newest_first()
    real.client.xadd(real.keys.dead, dict(letter.raw))
    bury(real, job())
    done = letters.requeue(list(letters.newest_first()))
    assert [bool(one.entry_id) for one in done] == [True, True, False]
    assert letters.count() == 1
