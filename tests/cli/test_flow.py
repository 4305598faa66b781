"""``flow``: what is started, told and shown, and one clear message for everything that cannot be."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from rich.console import Console

import stagedoor
from stagedoor.broker.call_texts import CallSettings
from stagedoor.cli import flow_view
from stagedoor.cli.app import run
from stagedoor.cli.explaining_calls import of_call
from stagedoor.cli.flow_show import screen_of
from stagedoor.cli.output import show
from stagedoor.core.call import MAX_CALL_BYTES, MAX_VALUE_BYTES, CallState, Kind, Step, StepState
from stagedoor.core.journal import Journal, step_text
from stagedoor.errors import Permanent
from stagedoor.testing.fake_calls import FakeCalls
from tests.flows.support import World

type Captured = pytest.CaptureFixture[str]
KEYS = ["id", "flow", "state", "waiting_for", "due_at", "steps", "memos", "signals", "result", "error", "places"]
FLOWS = """
import stagedoor

@stagedoor.flow("greet")
def greet(call):
    name = call.memo("name", str.upper, "ada")
    call.wait_signal("go")
    return name
"""


@attrs.frozen
class Said:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The one JSON object on stdout."""
        assert self.out.count("\n") == 1, self.out
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The last line on stderr."""
        assert "Traceback" not in self.err
        return self.err.splitlines()[-1]


type Flow = Callable[..., Said]


@pytest.fixture
def flow(redis_url: str, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> Flow:
    """Run ``flow …`` on this test's namespace, where the flow ``greet`` is installed."""
    module = f"flows_{re.sub('[^a-z0-9]', '_', namespace.lower())}"
    (tmp_path / f"{module}.py").write_text(FLOWS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("STAGEDOOR_REDIS_URL", redis_url)
    monkeypatch.setenv("STAGEDOOR_NAMESPACE", namespace)
    monkeypatch.setenv("STAGEDOOR_PLUGINS", module)

    def call(*words: str) -> Said:
        code = run(["flow", *words])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


# -- starting ---------------------------------------------------------------------------------


def test_a_call_is_started_once_however_often_it_is_asked_for(flow: Flow) -> None:
    first = flow("start", "greet", "--id", "c1", "--meta", "order=4471", "--meta", "note=a=b")
    assert first == Said(0, "call c1 of greet is started\n", "")
    again = flow("start", "greet", "--id", "c1", "--meta", "order=1", "--json")
    assert again.data == {"id": "c1", "flow": "greet", "state": "waiting", "created": False}
    assert again.code == 0
    assert (
        flow("start", "greet", "--id", "c1").out
        == "there is a call c1 of greet already, waiting: nothing was started\n"
    )
    assert flow("show", "c1", "--json").data["places"][0]["metadata"] == {"order": "4471", "note": "a=b"}


def test_an_id_of_another_flow_is_refused(flow: Flow) -> None:
    flow("start", "greet", "--id", "c1")
    said = flow("start", "other", "--id", "c1", "--anyway")
    assert said == Said(1, "nothing was started: c1 is a call of another flow, greet\n", "")


def test_each_start_without_an_id_is_another_call(flow: Flow) -> None:
    ids = {flow("start", "greet", "--json").data["id"] for _ in range(2)}
    assert {line["id"] for line in flow("list", "--json").data["calls"]} == ids
    assert len(ids) == 2


def test_a_delayed_start_sleeps(flow: Flow) -> None:
    assert (
        flow("start", "greet", "--id", "c1", "--delay", "90").out
        == "call c1 of greet is started; it begins in 90.0 s\n"
    )
    shown = flow("show", "c1", "--json").data
    assert (shown["state"], shown["waiting_for"]) == ("sleeping", "its start")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", shown["due_at"])


def test_a_flow_that_is_not_installed_is_named_with_those_that_are(flow: Flow) -> None:
    said = flow("start", "greet-all")
    assert said.code == 2
    assert "no flow 'greet-all' is installed here (did you mean greet?)" in said.complaint
    assert "(there are: " in flow("start", "xyz").complaint
    assert flow("list", "--json").data["calls"] == []
    assert flow("start", "greet-all", "--anyway", "--id", "c1").code == 0


# -- telling ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value,text", [((), "null"), (("-1",), "-1"), (('{"a": []}',), '{"a":[]}'), (('"ü"',), '"ü"')])
def test_a_signal_lies_in_the_mailbox(flow: Flow, value: tuple[str, ...], text: str) -> None:
    flow("start", "greet", "--id", "c1")
    assert flow("signal", "c1", "go", *value) == Said(0, "signal 'go' is in the mailbox of call c1\n", "")
    assert flow("show", "c1", "--json").data["signals"] == {"go": [json.loads(text)]}


def test_a_signal_that_the_call_does_not_wait_for_says_for_which_one_it_waits(capsys: Captured) -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        call.wait_signal("approved")

    world = World(f)
    world.start("f")
    world.run_ready(world.worker())
    flow_view.signal(world.outside, "c1", "aproved", "null", as_json=False)
    world.run_ready(world.worker())
    flow_view.signal(world.outside, "c1", "approved", "null", as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "signal 'aproved' is in the mailbox of call c1; the call waits for 'approved'",
        "signal 'approved' is in the mailbox of call c1",
    ]


def test_what_an_ended_call_has_left_undone_is_not_under_way_any_more(capsys: Captured) -> None:
    status = {".flow": "f", ".state": "cancelled", ".outcome": "cancelled", ".created": "1000", ".finished": "2000"}
    steps = [
        step("grace", StepState.SLEEPING, Kind.SLEEP, place=1, due_at=190.0, more={"at": 1.0}),
        step("mail", StepState.RETRY, place=2, attempts=1, error="OSError: no", due_at=190.0, more={"at": 1.5}),
    ]
    lines = _lines(Journal("c1", status | dict(steps), {}), 10.0, capsys)
    assert any(line.startswith("1 ✗ grace sleep not done") for line in lines)
    assert any(line.startswith("2 ✗ mail not done") for line in lines)
    assert "✗ mail after 1 attempt: OSError: no" in lines
    assert not any("ends" in line or "due" in line for line in lines)


def test_a_value_may_come_from_the_standard_input(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    flow("start", "greet", "--id", "c1")
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps("x" * 200_000)))
    assert flow("signal", "c1", "go", "-").code == 0
    [value] = flow("show", "c1", "--json").data["signals"]["go"]
    assert value == "x" * 200_000


@pytest.mark.parametrize("words", [("signal", "c1", "go"), ("cancel", "c1"), ("resume", "c1"), ("show", "c1")])
def test_what_is_told_to_nobody_is_said_with_exit_code_1(flow: Flow, words: tuple[str, ...]) -> None:
    said = flow(*words)
    assert (said.code, said.err) == (1, "")
    assert said.out == "c1: there is no such call: its id is another one, or it ended and was kept no longer\n"
    told = flow(*words, "--json").data
    assert told in ({"id": "c1", "told": False, "problem": "unknown"}, {"id": "c1", "found": False})


def test_a_call_that_goes_on_by_itself_is_not_resumed(flow: Flow) -> None:
    flow("start", "greet", "--id", "c1")
    assert flow("resume", "c1") == Said(1, "c1: it is not parked: it goes on by itself\n", "")
    assert flow("cancel", "c1").code == 0
    assert flow("cancel", "c1", "--json").data == {"id": "c1", "told": True, "problem": None}


def _deep(count: int) -> str:
    return "[" * count + "]" * count


@pytest.mark.parametrize(
    "words,said",
    [
        (("signal", "c1", "go", "{bad"), "expected JSON, such as 12 or '\"text\"', found '{bad'"),
        (("signal", "c1", "go", "--jsn"), "expected JSON"),
        (("signal", "c1", "go", "NaN"), "NaN and infinite numbers are no JSON"),
        (("signal", "c1", "go", "1e999"), "expected JSON"),
        (("signal", "c1", "go", '"\\ud800"'), "expected JSON"),
        (("signal", "c1", "go", "9" * 5000), "expected JSON"),
        (("signal", "c1", "go", ""), "expected JSON"),
        (("signal", "c1", "go", _deep(200_000)), "the value is nested too deeply"),
        (("signal", "c1", "go", f'"{"x" * 10_000_000}"'), "expected at most 262,144 bytes, found 10,000,002"),
        (("signal", "c1", "go", f'"{"x" * (MAX_VALUE_BYTES - 1)}"'), "expected at most 262,144 bytes, found 262,145"),
        (("signal", "c1", ".go"), "expected 1 to 200 printable characters without a leading dot, found '.go'"),
        (("signal", "c1", "a\x1b[2J"), r"found 'a\x1b[2J'"),
        (("signal", "c1", "x" * 201), "expected 1 to 200 printable characters"),
        (("signal", "c 1", "go"), "expected an id of a call, [A-Za-z0-9._-]{1,64}, found 'c 1'"),
        (("show", "é"), r"found '\xe9'"),
        (("cancel", "x" * 65), "expected an id of a call"),
        (("resume", ""), "expected an id of a call"),
        (("start", "greet", "--id", "a/b"), "expected an id of a call"),
        (("start", "greet", "--delay", "-1"), "expected 0 to 316224000 seconds (ten years), found '-1'"),
        (("start", "greet", "--delay", "nan"), "found 'nan'"),
        (("start", "greet", "--delay", "inf"), "found 'inf'"),
        (("start", "greet", "--delay", "316224001"), "found '316224001'"),
        (("start", "greet", "--delay", "soon"), "found 'soon'"),
        (("start", "greet", "--meta", "order"), "expected NAME=VALUE, found 'order'"),
        (("start", "greet", "--meta", "=1"), "expected a name of 1 to 200 printable characters"),
        (("start", "greet", "--meta", "a=1", "--meta", "a=2"), "--meta a=… is given more than once"),
        (("start", "greet", "--meta", "a=\udcff"), "the value of 'a' is no UTF-8"),
        (
            ("start", "greet", "--meta", f"a={'x' * MAX_CALL_BYTES}"),
            "--meta: expected at most 16,777,216 bytes in all, found 16,777,217",
        ),
        (("start", "a b"), "the flow's name 'a b' is not 1 to 64 letters"),
        (("list", "--state", "happy"), "'happy' is not one of"),
        (("list", "--limit", "0"), "0 is not in the range"),
    ],
)
def test_what_cannot_be_is_one_message_and_changes_nothing(flow: Flow, words: tuple[str, ...], said: str) -> None:
    flow("start", "greet", "--id", "c1")
    refused = flow(*words)
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.complaint
    assert len(refused.complaint) < 500
    assert [line["id"] for line in flow("list", "--json").data["calls"]] == ["c1"]
    assert flow("show", "c1", "--json").data["signals"] == {}


# -- lists --------------------------------------------------------------------------------------


def test_calls_are_listed_by_state_up_to_a_limit(flow: Flow) -> None:
    for number in range(3):
        flow("start", "greet", "--id", f"c{number}")
    flow("start", "greet", "--id", "later", "--delay", "3600")
    assert [line["id"] for line in flow("list", "--state", "sleeping", "--json").data["calls"]] == ["later"]
    data = flow("list", "--limit", "2", "--json").data
    assert (len(data["calls"]), data["more"]) == (2, True)
    assert list(data["calls"][0]) == ["id", "flow", "state", "waiting_for", "created_at", "due_at"]
    assert flow("list", "--state", "parked").out == "no calls are parked\n"
    out = flow("list").out
    assert re.search(r"^c0 +greet +waiting +\S+ ms +a worker$", out, re.MULTILINE)
    assert re.search(r"^later +greet +sleeping +\S+ ms +its start, in 60 min$", out, re.MULTILINE)
    assert flow("list", "--limit", "1").out.splitlines()[-1] == "… there are more: flow list --limit 10"


def test_a_list_finds_the_few_among_many(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr("stagedoor.cli.flow_view.PAGE", 2)
    world = World(greet)
    for number in range(9):
        world.start("greet", f"c{number}", delay_s=60.0 if number == 7 else 0.0)
    flow_view.list_calls(world.outside, CallState.SLEEPING, limit=50, as_json=True)
    assert [line["id"] for line in json.loads(capsys.readouterr().out)["calls"]] == ["c7"]


# -- one call -------------------------------------------------------------------------------------


@stagedoor.flow("greet")
def greet(call: Any) -> str:
    call.memo("name", str.upper, "ada")
    call.sleep("grace", 5)
    call.gather("print", [1, 2, 3], _print, attempts=1)
    return "never"


def _print(number: int) -> int:
    if number == 2:
        raise Permanent("out of \x1b[31mpaper")
    return number


@pytest.fixture
def failed() -> World:
    world = World(greet)
    world.start("greet", metadata={"order": "4471"})
    world.run()
    return world


def test_the_json_object_has_exactly_its_keys(failed: World, capsys: Captured) -> None:
    assert flow_view.show_call(failed.outside, "c1", as_json=True) == 0
    data = json.loads(capsys.readouterr().out)
    assert list(data) == KEYS
    assert (data["state"], data["memos"]["name"], data["result"]) == ("failed", "ADA", None)
    assert "out of" in data["error"]
    states = {step["key"]: step["state"] for step in data["steps"]}
    assert states == {
        "name": "done", "grace": "done", "print": "failed", "print/0": "done", "print/1": "failed",
    }  # fmt: skip
    assert all(list(step) == ["key", "state", "attempts", "error"] for step in data["steps"])
    assert [(place["place"], place["key"]) for place in data["places"]] == [
        (0, "greet"), (1, "name"), (2, "grace"), (3, "print"),
    ]  # fmt: skip


@pytest.mark.parametrize("as_json", [False, True])
def test_what_is_told_to_a_call_that_has_ended_is_said_with_exit_code_1(
    failed: World, capsys: Captured, *, as_json: bool
) -> None:
    tellings = [
        flow_view.signal(failed.outside, "c1", "go", "null", as_json=as_json),
        flow_view.cancel(failed.outside, "c1", as_json=as_json),
        flow_view.resume(failed.outside, "c1", as_json=as_json),
    ]
    lines = capsys.readouterr().out.splitlines()
    assert tellings == [1, 1, 1]
    for line in lines:
        if as_json:
            assert json.loads(line) == {"id": "c1", "told": False, "problem": "ended"}
        else:
            assert line == "c1: its end is decided, and nothing changes it any more"


def test_a_full_mailbox_says_so(capsys: Captured) -> None:
    world = World(greet)
    world.start("greet")
    calls = FakeCalls(world.broker, settings=CallSettings(most_signals=1))
    assert [flow_view.signal(calls, "c1", "go", "null", as_json=False) for _ in range(2)] == [0, 1]
    assert capsys.readouterr().out.splitlines()[1].startswith("c1: its mailbox is full")


def test_nothing_of_a_call_drives_the_terminal(failed: World, capsys: Captured) -> None:
    flow_view.show_call(failed.outside, "c1", as_json=False)
    out = capsys.readouterr().out
    assert r"out of \x1b[31mpaper" in out
    assert "\x1b" not in out


def test_what_a_journal_holds_is_escaped_wherever_it_is_shown(capsys: Captured) -> None:
    odd = "a\x1b[2J\u2028\u202eb"
    steps = [
        step(odd, StepState.FAILED, place=1, attempts=1, error=odd),
        step("paid", StepState.WAITING, Kind.SIGNAL, place=2, more={"signal": odd}),
        step(f"{odd}/0", StepState.RETRY, Kind.ITEM, attempts=1, error=odd),
    ]
    status = {".flow": odd, ".state": "waiting", ".created": "1", ".for": odd, ".outcome": "failed", ".error": odd}
    meta = {f"m:{odd}": odd, f"s:{odd}:1": f'"{odd}"', "result": odd}
    out = "".join(_lines(Journal("c1", status | dict(steps), meta), 10.0, capsys))
    assert out.isprintable()
    assert out.count("a\\x1b[2J\\u2028\\u202eb") >= 10


def _lines(journal: Journal, now: float, capsys: Captured) -> list[str]:
    show(*screen_of(journal, now=now))
    return [re.sub(" +", " ", line).strip() for line in capsys.readouterr().out.splitlines()]


def step(key: str, state: StepState, kind: Kind = Kind.STEP, **more: Any) -> tuple[str, str]:
    return key, step_text(Step(state=state, kind=kind, **more), 1)


def test_a_screen_has_every_step_with_its_times(capsys: Captured) -> None:
    status = {".flow": "close-order", ".state": "waiting", ".created": "1000000", ".for": "the signal 'paid'"}
    steps = [
        step("opened", StepState.DONE, Kind.MEMO, place=1, attempts=1, more={"at": 1010.0, "ran_s": 10.0}),
        step("grace", StepState.DONE, Kind.SLEEP, place=2, more={"at": 1100.0, "since": 1010.0}),
        step("print", StepState.RUNNING, Kind.GATHER, place=3, more={"at": 1100.0, "length": 40}),
        step("print/0", StepState.DONE, Kind.ITEM, attempts=1),
        *(step(f"print/{n}", StepState.RETRY, Kind.ITEM, attempts=2, error="OSError: x") for n in range(1, 10)),
        step("paid", StepState.WAITING, Kind.SIGNAL, place=4, due_at=1260.0, more={"at": 1150.0, "signal": "paid!"}),
        step("mail", StepState.RETRY, place=5, attempts=3, error="OSError: no", due_at=1190.0, more={"at": 1180.0}),
    ]
    meta = {"m:order": "4471", "s:late:1": '"x"'}
    lines = _lines(Journal("c1", status | dict(steps), meta), 1200.0, capsys)
    assert lines == [
        "Call c1 close-order waiting",
        "started 1970-01-01T00:16:40Z, 3 min ago",
        "waits for the signal 'paid'",
        "order 4471",
        "mailbox 1 × signal 'late' not taken yet: \"x\"",
        "",
        "step tries took",
        "1 ✓ opened memo 10.0 s ■···············",
        "2 ✓ grace sleep 90.0 s ■■■■■■■·········",
        "3 ▸ print gather running ········■■■■■■■■",
        "1 of 40 items, 9 retry",
        "4 … paid signal times out in 60.0 s ············■■■■",
        "5 ↻ mail retry due since 10.0 s 3 ··············■■",
        "",
        "↻ mail after 3 attempts: OSError: no",
        *(f"↻ print/{number} after 2 attempts: OSError: x" for number in range(1, 8)),
        "… 2 more",
        "",
        "next: python -m stagedoor flow signal c1 'paid!' VALUE",
    ]


def test_a_timer_that_is_just_due_is_taken_at_once() -> None:
    status = {".flow": "f", ".state": "sleeping", ".created": "1000", ".due": "9949"}
    told = of_call(Journal("c1", status, {}), now=10.0, has_workers=True)
    assert told.next == "a worker goes on with it at once"


def test_a_gather_of_one_item_has_one_item(capsys: Captured) -> None:
    steps = [step("g", StepState.RUNNING, Kind.GATHER, place=1, more={"length": 1})]
    lines = _lines(Journal("c1", {".flow": "f", ".state": "running", ".created": "1"} | dict(steps), {}), 10.0, capsys)
    assert "0 of 1 item" in lines


def test_a_long_history_is_shown_from_both_ends(capsys: Captured) -> None:
    status = {".flow": "f", ".state": "running", ".created": "1000"}
    steps = [step(f"s{number}", StepState.DONE, place=number, attempts=1) for number in range(1, 1001)]
    lines = _lines(Journal("c1", status | dict(steps), {}), 10.0, capsys)
    assert "… 940 more" in lines
    assert {"10 ✓ s10", "951 ✓ s951", "1000 ✓ s1000"} <= set(lines)
    assert not {"11 ✓ s11", "950 ✓ s950"} & set(lines)


def test_what_waits_for_a_worker_by_now_needs_no_signal(capsys: Captured) -> None:
    status = {".flow": "f", ".state": "waiting", ".created": "1000", ".queued": "2:1-0", ".for": "a worker"}
    key, text = step("paid", StepState.WAITING, Kind.SIGNAL, place=1, more={"signal": "paid"})
    assert not any("next:" in line for line in _lines(Journal("c1", status | {key: text}, {}), 10.0, capsys))


def test_a_screen_fits_eighty_columns(failed: World) -> None:
    console = Console(width=80, record=True, file=io.StringIO(), force_terminal=True)
    console.print(*screen_of(failed.show(), now=failed.now()), sep="\n")
    assert max(map(len, console.export_text(styles=False).splitlines())) <= 80


@pytest.mark.parametrize(
    "status,hint",
    [
        (
            {".state": "parked", ".parked": "flow_changed", ".why": "no"},
            "next: put right what parked it, then flow resume c1; or flow cancel c1",
        ),
        ({".state": "done", ".outcome": "done", ".finished": "4000"}, "ended 1970-01-01T00:00:04Z, after 3.0 s"),
        ({".state": "waiting", ".queued": "1:1-0", ".cancel": "1"}, "cancel was asked for"),
    ],
)  # fmt: skip
def test_a_screen_says_what_somebody_may_do(status: dict[str, str], hint: str, capsys: Captured) -> None:
    lines = _lines(Journal("c1", {".flow": "f", ".created": "1000"} | status, {}), 10.0, capsys)
    assert hint in lines
    assert "no steps yet" in lines
