"""What signals ask of the worker, and what the process that tells of them keeps."""

import inspect
import signal
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from stagedoor.worker.stopping import HURRY_S, ExitCode, StopRequest, heeding

TERM, INT, HUP, USR1, USR2 = signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2
GRACE_S = 25.0


class Process:
    """Keeps what it is given, and the deadlines."""

    def __init__(self) -> None:
        self.pass_on: Callable[[int], None] = lambda _number: None
        self.code_at_deadline: Callable[[], int] = int
        self.seconds: tuple[float, float] = (0, 0)
        self.deadlines: list[float] = []

    def serve(
        self, pass_on: Callable[[int], None], code_at_deadline: Callable[[], int], *, grace_s: float, hurry_s: float
    ) -> None:
        self.pass_on, self.code_at_deadline = pass_on, code_at_deadline
        self.seconds = (grace_s, hurry_s)

    def end_within(self, seconds: float) -> None:
        self.deadlines.append(seconds)

    async def tell(self, *numbers: int) -> None:
        """Tell of signals; returns when they were heeded."""
        for number in numbers:
            self.pass_on(number)
        await wait_all_tasks_blocked()


@pytest.mark.parametrize(
    "numbers, deadlines",
    [
        ([TERM], [GRACE_S]),
        ([HUP, HUP], [GRACE_S]),
        ([TERM, HUP], [GRACE_S]),
        ([TERM, INT], [GRACE_S, HURRY_S]),
        ([HUP, TERM, TERM], [GRACE_S, HURRY_S]),
        ([0, USR1], []),
    ],
)
async def test_a_first_request_has_the_grace_and_a_second_less(numbers: list[int], deadlines: list[float]) -> None:
    process, stop = Process(), StopRequest()
    async with heeding(process, stop, GRACE_S):
        await process.tell(*numbers)
        assert process.deadlines == deadlines
        assert (stop.is_asked, stop.why) == ((True, signal.Signals(numbers[0]).name) if deadlines else (False, ""))
    assert process.seconds == (GRACE_S, HURRY_S)


async def test_a_stop_that_no_signal_asked_for_has_the_same_deadlines() -> None:
    process, stop = Process(), StopRequest()
    async with heeding(process, stop, GRACE_S):
        for _ in range(2):
            stop.ask("orphans", ExitCode.ORPHANED)
        await wait_all_tasks_blocked()
    assert process.deadlines == [GRACE_S, HURRY_S]


async def test_what_means_nothing_is_told_once_for_each() -> None:
    process, others = Process(), list[int]()
    async with heeding(process, StopRequest(), GRACE_S, on_other=others.append):
        await process.tell(USR1, USR2, USR1, 0, HUP, HUP)
    assert others == [USR1, USR2]


def test_what_the_process_keeps_when_the_block_has_ended_is_no_closure_and_does_no_harm() -> None:
    """It tells of signals until it has gone, and asks for the code at its deadline: also after the loop has ended."""
    process, stop, others = Process(), StopRequest(), list[int]()

    async def serve() -> None:
        async with heeding(process, stop, GRACE_S, on_other=others.append):
            pass
        await process.tell(TERM, TERM)

    trio.run(serve, clock=MockClock())
    assert (stop.is_asked, process.deadlines) == (True, [])
    process.pass_on(USR1)
    assert others == []
    for kept in (process.pass_on, process.code_at_deadline):
        assert inspect.ismethod(kept)
        assert kept.__func__.__closure__ is None


@pytest.mark.parametrize(
    "asked, has_left, code",
    [(ExitCode.OK, False, 1), (ExitCode.OK, True, 0), (ExitCode.ORPHANED, False, 70), (ExitCode.ORPHANED, True, 70)],
)
async def test_at_its_deadline_it_ends_well_only_when_the_worker_has_left(
    asked: ExitCode, has_left: bool, code: int
) -> None:
    process, stop = Process(), StopRequest()
    async with heeding(process, stop, GRACE_S):
        stop.ask("a test", asked)
        stop.has_left = has_left
    assert process.code_at_deadline() == code
