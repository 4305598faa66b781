"""The owner of a process' signals: what it counts, whose a signal is, and the deadline that it gives the process."""

import itertools
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from stagedoor.cli import process as owner
from stagedoor.cli.process import ServiceProcess
from tests.process.support import ROOT

TERM, INT, HUP, USR1 = signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1
GRACE_S, HURRY_S = 25.0, 5.0


class Owner:
    """One that owns some signals, without a pipe and a thread, by a clock that a test sets."""

    def __init__(self, clock: SimpleNamespace, *owned: int) -> None:
        self.process = ServiceProcess()
        self.process._owned = owned
        self.passed_on: list[int] = []
        self._clock = clock
        self.process.serve(self.passed_on.append, int, grace_s=GRACE_S, hurry_s=HURRY_S)

    def heed(self, at: float, number: int) -> None:
        """Be told of a signal at this time."""
        self._clock.now = at
        self.process._heed(number)

    @property
    def deadline(self) -> float:
        """When the process ends whatever it does."""
        return self.process._deadline


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The owner's clock."""
    made = SimpleNamespace(now=0.0)
    monkeypatch.setattr(owner, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


@pytest.fixture
def usr1() -> Iterator[None]:
    """The handler of SIGUSR1 is as it was after the test."""
    before = signal.getsignal(USR1)
    yield
    signal.signal(USR1, before)


@pytest.mark.parametrize(
    "told, deadline",
    [
        ([(1, TERM)], 1 + GRACE_S),
        ([(1, HUP)], 1 + GRACE_S),
        ([(1, TERM), (4, TERM)], 4 + HURRY_S),
        ([(1, HUP), (4, INT)], 4 + HURRY_S),
        ([(1, TERM), (24, INT)], 1 + GRACE_S),
        ([(1, TERM), (4, INT), (5, TERM)], 4 + HURRY_S),
        ([(1, HUP), (4, HUP)], 1 + GRACE_S),
        ([(1, TERM), (4, HUP)], 1 + GRACE_S),
        ([(1, USR1)], float("inf")),
    ],
)
def test_the_first_request_leaves_the_grace_and_the_second_less(
    clock: SimpleNamespace, told: list[tuple[float, int]], deadline: float
) -> None:
    made = Owner(clock, TERM, INT, HUP, USR1)
    for at, number in told:
        made.heed(at, number)
    assert made.deadline == deadline


def test_whoever_asked_gives_a_deadline_too_and_only_an_earlier_one_counts(clock: SimpleNamespace) -> None:
    made = Owner(clock, TERM)
    made.process.end_within(10)
    made.heed(1, TERM)
    assert made.deadline == 10
    made.process.end_within(2)
    assert made.deadline == 3
    made.process.end_within(4)
    assert made.deadline == 3


def test_at_its_deadline_and_no_sooner_the_process_ends_with_the_code_for_that(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own thread waits for just as long as is left, and looks at the clock again."""
    made = Owner(clock, TERM)
    made.process._pipe = (0, 1)
    waited: list[float | None] = []
    moments = itertools.chain([GRACE_S - 1, GRACE_S])

    def poll(milliseconds: float | None) -> None:
        waited.append(milliseconds)
        clock.now = next(moments)

    def end(code: int) -> None:
        raise SystemExit(code)

    polling = SimpleNamespace(register=lambda *_: None, poll=poll)
    monkeypatch.setattr(owner, "select", SimpleNamespace(poll=lambda: polling, POLLIN=1, PIPE_BUF=1))
    monkeypatch.setattr(owner, "os", SimpleNamespace(read=lambda *_: b"", _exit=end))
    made.process._code_at_deadline = lambda: 7
    made.heed(0, TERM)
    with pytest.raises(SystemExit) as ended:
        made.process._run()
    assert ended.value.code == 7
    assert (clock.now, waited) == (GRACE_S, [GRACE_S * 1000, 1000])


def test_of_a_signal_that_is_somebody_else_s_only_the_loop_is_woken(clock: SimpleNamespace, usr1: None) -> None:
    made = Owner(clock, TERM, USR1)
    signal.signal(USR1, made.process._note)
    made.heed(0, USR1)
    signal.signal(USR1, lambda _number, _frame: None)
    made.heed(0, USR1)
    made.heed(0, HUP)
    assert made.passed_on == [USR1, 0, 0]
    assert made.deadline == float("inf")


def test_each_signal_counts_once_whichever_halves_tell_of_it() -> None:
    lower, upper = int(TERM), int(TERM) | 128

    def news(*told: int) -> list[bool]:
        process = ServiceProcess()
        return [process._is_news(byte) for byte in told]

    assert news(lower, upper, lower, upper) == [True, False, True, False]
    assert news(lower, lower, upper, upper) == [True, True, False, False]
    assert news(upper, lower, upper) == [True, True, False], "trio had the lower half when the first came"
    assert news(0) == [False]


def test_a_fault_is_shown_and_no_thread_keeps_the_process() -> None:
    script = (
        "import threading\nfrom stagedoor.cli.process import run_service\n"
        "threading.Thread(target=threading.Event().wait).start()\nrun_service(lambda process: 1 // 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
