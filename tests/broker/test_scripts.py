"""Each script's header agrees with its call site, and no script can hold Redis for long."""

import importlib.resources
import re
from typing import Any

import attrs
import pytest

from stagedoor.broker import connection
from stagedoor.broker.calls import Running
from stagedoor.broker.checkup import Checkup
from stagedoor.broker.connection import Script, read_script
from stagedoor.broker.dead_letters import DeadLetters
from stagedoor.broker.deliveries import Pulse
from stagedoor.broker.losses import Losses
from stagedoor.broker.publishing import OutboxEntry
from stagedoor.core.call import CallOutcome, CallState, Sleep, StepState, StepWrite
from stagedoor.core.outcome import Dead, Reason, RetryLater
from stagedoor.core.tenure import Stream
from tests.broker.flow_harness import begun, done, is_now, make_look_due, new_call, started, take_one
from tests.broker.harness import RedisHarness, job, settled

FOLDER = importlib.resources.files("stagedoor.broker") / "scripts"
FILES = sorted(entry.name for entry in FOLDER.iterdir() if entry.name.endswith(".lua"))
SCRIPTS = [name.removesuffix(".lua") for name in FILES if not name.startswith("_")]
INCLUDES = [name.removesuffix(".lua") for name in FILES if name.startswith("_")]

NEW_WORK = {"publish", "requeue", "start_call"}
"""What waits at maxmemory; all others drain."""

ALLOWED = frozenset(
    (
        *("DEL", "GET", "GETBIT", "HDEL", "HEXISTS", "HGET", "HGETALL", "HINCRBY", "HMGET", "HSET", "HSETNX"),
        *("HSTRLEN", "PEXPIRE", "PTTL", "RENAMENX", "SET", "SETBIT", "TIME", "TYPE"),
        *("XACK", "XADD", "XCLAIM", "XDEL", "XGROUP", "XINFO", "XLEN", "XPENDING", "XRANGE", "XREADGROUP"),
        *("XREVRANGE", "ZADD", "ZRANGE", "ZRANGEBYSCORE", "ZREM", "ZSCORE"),
    )
)
NUMBER_WORDS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6}


@attrs.frozen
class Header:
    """What the lines above a script promise; *more* is whether the last place stands for many."""

    name: str
    purpose: str
    keys: tuple[str, ...]
    more_keys: bool
    args: tuple[str, ...]
    more_args: bool
    sections: frozenset[str]


def header_of(name: str) -> Header:
    text = (FOLDER / f"{name}.lua").read_text("utf-8")
    lines = re.match(r"#!.*\n((?:--.*\n)+)", text)
    assert lines is not None, f"{name}.lua begins with its flags and a comment"
    comment = lines[1]
    purpose = re.match(r"-- (\w+): (.+)", comment)
    assert purpose is not None, f"{name}.lua says first what it does"
    keys, more_keys = _places("KEYS", comment)
    args, more_args = _places("ARGV", comment)
    sections = frozenset(re.findall(r"^-- (Reply|Invariant|Fence|Cost)\b", comment, re.MULTILINE))
    return Header(purpose[1], purpose[2], keys, more_keys, args, more_args, sections)


def _places(word: str, comment: str) -> tuple[tuple[str, ...], bool]:
    found = re.findall(rf"^-- {word}\[(\d+)(…?)\] +(.*(?:\n--  {{7,}}.*)*)", comment, re.MULTILINE)
    assert [int(number) for number, _, _ in found] == list(range(1, len(found) + 1)), f"{word} are numbered from 1"
    more = [bool(dots) for _, dots, _ in found]
    assert not any(more[:-1]), f"only the last of {word} may stand for many"
    return tuple(" ".join(text.split()) for _, _, text in found), bool(more) and more[-1]


def code_of(text: str) -> str:
    """Return a script without its comments."""
    return re.sub(r"--.*", "", text)


# -- what is written above each ---------------------------------------------------------


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_what_it_does_and_names_itself(name: str) -> None:
    header = header_of(name)
    assert header.name == name
    assert len(header.purpose) > 20
    assert header.sections == {"Reply", "Invariant", "Fence", "Cost"}
    assert header.keys
    assert header.args


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_begins_with_its_flags_and_only_new_work_waits_at_maxmemory(name: str) -> None:
    first = read_script(name).partition("\n")[0]
    assert first == ("#!lua" if name in NEW_WORK else "#!lua flags=allow-oom")


@pytest.mark.parametrize("name", INCLUDES)
def test_an_included_file_says_who_includes_it_and_is_included(name: str) -> None:
    text = (FOLDER / f"{name}.lua").read_text("utf-8")
    assert text.startswith("-- Included by ")
    assert any(f"-- include: {name}.lua\n" in (FOLDER / f"{script}.lua").read_text("utf-8") for script in SCRIPTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_key_has_a_type_and_a_pattern(name: str) -> None:
    for key in header_of(name).keys:
        assert re.match(r"(stream|hash|zset|string|bitmap|any) +<ns>", key), key


# -- what no script may do ------------------------------------------------------------------


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_uses_known_commands_only_and_walks_no_key_space(name: str) -> None:
    used = set(re.findall(r"redis\.p?call\('(\w+)'", read_script(name)))
    assert used
    assert used <= ALLOWED
    assert not re.search(r"\b(KEYS|SCAN|HSCAN|ZSCAN|FLUSHALL)'", read_script(name))
    # A call is read whole: what it may keep is bounded by the scripts that write it.
    assert "HGETALL'" not in read_script(name) or name in {"begin_pass", "end_pass"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_walk_in_a_script_is_bounded(name: str) -> None:
    code = code_of(read_script(name))
    for call in re.findall(r"redis\.p?call\('(?:XRANGE|XREVRANGE|XREADGROUP|ZRANGEBYSCORE)'[^)]*\)", code):
        assert re.search(r"'(COUNT|LIMIT)'", call), call
    for call in re.findall(r"redis\.p?call\('XPENDING'([^)]*)\)", code):
        arguments = [part for part in call.split(",") if part.strip()]
        assert len(arguments) != 4, f"XPENDING without a count: {call}"
    assert "XAUTOCLAIM" not in code, "it drops bodiless entries of live workers"


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_makes_no_key_names_so_that_it_can_run_on_a_cluster(name: str) -> None:
    code = code_of(read_script(name))
    for command, literal in re.findall(r"redis\.p?call\('(\w+)', '([^']*)'", code):
        assert command in {"XGROUP", "XINFO", "XREADGROUP"}, (command, literal)
    assert "..KEYS" not in code.replace(" ", "")
    assert not re.search(r"KEYS\[[^]]*\] *\.\.", code)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_key_and_argument_of_the_header_is_used_and_no_other(name: str) -> None:
    """Places are used by number, or all from one place on."""
    code, header = code_of(read_script(name)), header_of(name)
    for word, places, more in (("KEYS", header.keys, header.more_keys), ("ARGV", header.args, header.more_args)):
        used = {int(number) for number in re.findall(rf"\b{word}\[(\d+)\]", code)}
        assert not used - set(range(1, len(places) + 1)), f"{word} past the header"
        by_variable = bool(re.search(rf"\b{word}\[[^\d\]]", code)) or f"unpack({word}" in code
        assert by_variable or used == set(range(1, len(places) + 1)), f"{word} that nobody reads"
        assert by_variable or not more


# -- headers against call sites -----------------------------------------------------------------


@attrs.frozen
class Call:
    """One call of a script as it was sent."""

    name: str
    keys: tuple[str, ...]
    args: tuple[Any, ...]


@pytest.fixture
def calls(real: RedisHarness, monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Every call of a script that one worker's life and a relay make, as they went to Redis."""
    by_sha = {Script(name)._sha: name for name in SCRIPTS}
    recorded: list[Call] = []
    send = connection.send

    def spy(client: Any, *command: Any) -> Any:
        if command[0] == "EVALSHA":
            sha, count, *rest = command[1:]
            recorded.append(Call(by_sha[sha], tuple(rest[:count]), tuple(rest[count:])))
        return send(client, *command)

    monkeypatch.setattr(connection, "send", spy)
    _live(real)
    return recorded


def _live(real: RedisHarness) -> None:
    worker, other = real.worker("w"), real.worker("other")
    relay = real.publishing()
    rows = [OutboxEntry(number, job(outbox_id=str(number))) for number in (1, 2, 9000)]
    relay.publish("book", rows)
    real.add(job(), Stream.CRITICAL)
    claimed = worker.read(8, for_jobs=1).claimed
    worker.renew([one.tenure for one in claimed])
    worker.beat(Pulse(slots=8, held=4))
    outcomes = [None, RetryLater(0, 2, "x"), Dead(Reason.PERMANENT, "x")]
    worker.settle(1, [settled(one, outcome) for one, outcome in zip(claimed, outcomes, strict=False)])
    worker.release(claimed[3:])
    worker.promote()
    worker.read(8)
    worker.stray([])
    other.sweep()
    other.sweep()
    other.reclaim()
    worker.retire()
    _look_after(real)
    apart = RedisHarness(real.url, f"{real.keys.namespace}-calls")
    _live_a_call(apart)
    apart.close()


def _live_a_call(real: RedisHarness) -> None:
    """What a flow's engine, its starter and an operator have done."""
    worker, calls, claimed, right = started(real)
    calls.start(new_call("other", delay_s=3600))
    calls.signal("c", "go", "1", token="t")
    mark = is_now("a", StepState.RUNNING)
    calls.keep([Running(right, (mark,)), Running(right)])
    calls.record_step(right, done("b", 2))
    waiting = StepWrite(key="w", step=mark.step, seen=None)
    calls.take_signal(right, "go", taken=waiting, timed_out=waiting, waiting=waiting)
    calls.record_outcome(right, CallOutcome(state=CallState.DONE, result="1"))
    worker.settle(1, [settled(claimed, Dead(Reason.POISON, "x"))])
    calls.resume("c")
    again = begun(calls, take_one(worker))
    calls.end_pass(again.right, Sleep(until=1.0, waiting_for="x"), write=is_now("z", StepState.SLEEPING))
    make_look_due(real, "c", "other")
    calls.look()


def _look_after(real: RedisHarness) -> None:
    """What operators have done."""
    letters = DeadLetters(real.link, real.keys)
    letters.requeue(list(letters.newest_first()))
    letters.drop(["1-1"])
    _lose_unread(real)
    Losses(real.link, real.keys).note()
    Checkup(real.link, real.keys).mend(["1:1-1"])
    Checkup(real.link, real.keys).set_aside(real.keys.trimmed, "hash")


def _lose_unread(real: RedisHarness) -> None:
    worker = real.worker("witness")
    worker.read(100)
    real.trim(real.add(job()))


def _pattern(key: str) -> str:
    """Return a regular expression of the pattern (or two) in a KEYS line."""
    patterns = re.findall(r"<ns>[^ ,]*", key)
    names = ["|".join(re.sub(r"<\w+>", "[A-Za-z0-9._-]+", re.escape(p).replace(r"\<", "<")) for p in patterns)]
    return rf"(?:{names[0]})"


@pytest.mark.redis
def test_every_script_is_called(calls: list[Call]) -> None:
    assert {call.name for call in calls} == set(SCRIPTS)


@pytest.mark.redis
@pytest.mark.parametrize("name", SCRIPTS)
def test_call_sites_pass_what_the_header_says(calls: list[Call], name: str) -> None:
    header = header_of(name)
    for call in (call for call in calls if call.name == name):
        _check_count(len(call.keys), len(header.keys), more=header.more_keys)
        _check_count(len(call.args), len(header.args), more=header.more_args)
        for place, key in enumerate(call.keys):
            promised = header.keys[min(place, len(header.keys) - 1)]
            assert re.fullmatch(_pattern(promised), key), f"KEYS[{place + 1}]: {promised!r} got {key!r}"
        _check_groups(call, header)


def _check_count(found: int, promised: int, *, more: bool) -> None:
    if more:
        assert found >= promised - 1
    else:
        assert found == promised


def _check_groups(call: Call, header: Header) -> None:
    """Where the last place stands for a list of so many values each, so many must have been sent."""
    if not header.more_args:
        return
    each = re.search(r"\bper \w+ (\w+) values", header.args[-1])
    names_and_values = "field names and values" in header.args[-1] and "then" not in header.args[-1]
    size = NUMBER_WORDS[each[1]] if each else 2 if names_and_values else 1
    assert (len(call.args) - (len(header.args) - 1)) % size == 0


@pytest.mark.redis
def test_lists_of_varying_length_say_how_long_they_are(calls: list[Call]) -> None:
    """Of `release` and `publish`: walking the list by its own counts ends exactly at its end."""
    counts_at = {"release": 3, "publish": 2, "requeue": 3}
    for call in calls:
        if call.name in counts_at:
            place = len(header_of(call.name).args) - 1
            while place < len(call.args):
                count_at = place + counts_at[call.name]
                place = count_at + 1 + int(call.args[count_at])
            assert place == len(call.args)


@pytest.mark.redis
def test_no_two_scripts_are_alike_and_all_load(real: RedisHarness) -> None:
    shas = {real.client.script_load(read_script(name)) for name in SCRIPTS}
    assert len(shas) == len(SCRIPTS)
