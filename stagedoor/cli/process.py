"""The process of a worker or a relay: one place owns its signals, its deadline and its end.

    listening ──────────────→ serving ───────────────→ gone
    a stop ends it with 0     a stop is passed on       os._exit

Between the first line and the last there is no moment at which the system's own
action on a signal is in force. A signal is a number in a pipe, which a thread of our
own reads and decides about. So it raises nothing in code that happens to run, counts
also while the main thread hangs, and, once somebody has been asked to stop, is never
more than a second request: what comes while the process leaves does nothing. The
same thread keeps the deadline, from the first request to ``os._exit``.

The number is written by the lower half of Python's signal handling, at once and in
whatever thread: the upper half, a Python function, has to wait until the main thread
runs Python again, and never does when that was about to block. It tells of the signal
a second time, marked, for a moment in which trio, which starts, has the lower half.

Nothing here may be imported that takes its time: until it listens, a signal has the system's action.
"""

import enum
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NoReturn

DEFAULT = "worker"
OWN_OPTIONS = ("--help", "-h", "--version")
SERVICES = (DEFAULT, "relay")
"""The commands that are services: whose processes are ended by signals, in order."""
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_HARMLESS = ("SIGUSR1", "SIGUSR2", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGIO", "SIGPWR", "SIGSTKFLT")
"""By default they would end the process without a word, and whoever sends one wants something else.

SIGQUIT is not among them: with it the system ends a process that must not go on, and writes a core.
"""
_WAKE = 0
"""What is written into the pipe when the deadline has changed; no signal has this number."""
_UPPER = 128
"""Marks a number that the upper half has written; signals end at 64."""


class _Phase(enum.Enum):
    LISTENING = enum.auto()
    SERVING = enum.auto()


class ServiceProcess:
    """This process, as long as it runs a service.

    Made, it owns nothing yet: `listen` does that, which the command line calls before anything else.
    """

    def __init__(self) -> None:
        self._phase = _Phase.LISTENING
        self._lock = threading.Lock()
        self._pipe: tuple[int, int] | None = None
        self._owned: tuple[int, ...] = ()
        self._masks = threading.local()
        self._told_once: Counter[int] = Counter()
        self._deadline = float("inf")
        self._stops = 0
        self._grace_s = self._hurry_s = 0.0
        self._pass_on: Callable[[int], None] = lambda _number: None
        self._code_at_deadline: Callable[[], int] = int

    # -- the phases -----------------------------------------------------------------

    def listen(self) -> None:
        """Own the signals of this process from now on; only its main thread may call this, once.

        Until it serves, a request to stop ends the process with 0: it has nothing in hand. A SIGHUP
        that is ignored stays so: whoever starts a process with ``nohup`` wants that. A child that is
        forked owns nothing.
        """
        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        self._owned = tuple(_ours())
        os.register_at_fork(before=self._hold, after_in_parent=self._let_go, after_in_child=self._disown)
        threading.Thread(target=self._run, name="signals", daemon=True).start()
        # Trio says so when it starts, and lets it be; `serve` takes the lower half back.
        warnings.filterwarnings("ignore", "It looks like Trio's signal handling", RuntimeWarning)
        signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        for number in self._owned:
            signal.signal(number, self._note)

    def serve(
        self, pass_on: Callable[[int], None], code_at_deadline: Callable[[], int], *, grace_s: float, hurry_s: float
    ) -> None:
        """Pass signals on from now on, instead of ending the process; to be called in trio's loop.

        Args:
            pass_on: called with a signal's number, in a thread; with 0 for one that is somebody else's.
                Must not block or raise, and must wake the main thread, which runs the upper halves.
            code_at_deadline: what the process ends with at its deadline.
            grace_s: at most so long after the first request to stop the process ends, whatever it does.
            hurry_s: the same after the second.
        """
        if self._pipe is not None:
            signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        with self._lock:
            self._phase = _Phase.SERVING
            self._pass_on, self._code_at_deadline = pass_on, code_at_deadline
            self._grace_s, self._hurry_s = grace_s, hurry_s

    def end_within(self, seconds: float) -> None:
        """End the process in so many seconds if it has not ended by itself, unless it has an earlier deadline."""
        with self._lock:
            self._deadline = min(self._deadline, time.monotonic() + seconds)
        self._write(_WAKE)

    def leave(self, code: int) -> NoReturn:
        """End the process now, whatever its threads do.

        An ordinary exit would run into threads of handlers that do not end, and into whatever those hold.
        Stderr is not flushed: when nobody reads it, the logs' thread stands in the middle of a write,
        and that would be waited for.
        """
        with suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
        os._exit(code)

    # -- signals --------------------------------------------------------------------

    def _note(self, number: int, _frame: object) -> None:
        """Be the upper half; runs in the midst of anything, and so does nothing else."""
        self._write(number | _UPPER)

    def _write(self, byte: int) -> None:
        """Tell our thread; a full pipe tells enough."""
        if self._pipe is not None:
            with suppress(OSError):
                os.write(self._pipe[1], bytes((byte,)))

    def _run(self) -> None:
        assert self._pipe is not None, "it listens"
        reading = self._pipe[0]
        poll = select.poll()
        poll.register(reading, select.POLLIN)
        while True:
            left = self._deadline - time.monotonic()
            if left <= 0:
                os._exit(self._code_at_deadline())
            poll.poll(None if left == float("inf") else left * 1000)
            with suppress(BlockingIOError):
                for byte in os.read(reading, select.PIPE_BUF):
                    if self._is_news(byte):
                        self._heed(byte & ~_UPPER)

    def _is_news(self, byte: int) -> bool:
        """Return whether a byte tells of a signal of which the other half has not told."""
        if byte < _UPPER:
            self._told_once[byte] += 1
            return byte != _WAKE
        if not self._told_once[byte & ~_UPPER]:
            return True
        self._told_once[byte & ~_UPPER] -= 1
        return False

    def _heed(self, number: int) -> None:
        is_ours = self._is_ours(number)
        with self._lock:
            if is_ours and number in STOPPING:
                self._count(number)
            if self._phase is _Phase.SERVING:
                self._pass_on(number if is_ours else _WAKE)

    def _is_ours(self, number: int) -> bool:
        """Return whether a signal is meant for us; asked for each, since a plugin may take one over at any time.

        A request to stop stays one then: whoever sends it wants the service to end.
        """
        return number in self._owned and (number in STOPPING or signal.getsignal(number) == self._note)

    def _count(self, number: int) -> None:
        """Keep the time of a request to stop, for it may be that nobody else can."""
        if self._phase is _Phase.LISTENING:
            os._exit(0)
        # A terminal that is closed says so more than once.
        self._stops = max(self._stops, 1) if number == signal.SIGHUP else self._stops + 1
        within = self._grace_s if self._stops == 1 else self._hurry_s
        self._deadline = min(self._deadline, time.monotonic() + within)

    # -- children ---------------------------------------------------------------------

    def _hold(self) -> None:
        """Before a fork: hold signals up in this thread, lest the child takes one for its parent's."""
        self._masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, self._owned)

    def _let_go(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._masks.before)

    def _disown(self) -> None:
        """In the child: give its signals back to the system, and keep nothing that reaches our thread."""
        signal.set_wakeup_fd(-1)
        for number in self._owned:
            if signal.getsignal(number) == self._note:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        for end in self._pipe or ():
            os.close(end)
        self._pipe = None
        self._let_go()


def with_command(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with the command that they mean when they name none."""
    is_unnamed = not words or (words[0].startswith("-") and words[0] not in OWN_OPTIONS)
    return [DEFAULT, *words] if is_unnamed else list(words)


def run_service(run: Callable[[ServiceProcess], int]) -> NoReturn:
    """Run a service in this process, which listens from now on, and end the process with its exit code.

    Args:
        run: runs it and returns the code; what it raises is shown as the interpreter shows it.
    """
    process = ServiceProcess()
    process.listen()
    try:
        code = run(process)
    except BaseException:  # noqa: BLE001 - shown, and the process ends
        sys.excepthook(*sys.exc_info())
        code = 1
    process.leave(code)


def name_of(number: int) -> str:
    """Return a signal's name; those for real time have none."""
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def _ours() -> Iterator[int]:
    """Yield the signals that a service owns and that are not somebody else's already."""
    for number in STOPPING:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            yield number
    named = (getattr(signal, name) for name in _HARMLESS if hasattr(signal, name))
    for number in (*named, *range(signal.SIGRTMIN, signal.SIGRTMAX + 1)):
        if signal.getsignal(number) == signal.SIG_DFL:
            yield number
