"""A worker process with the handlers of the tests; its one argument says how, as JSON.

Every event is a line of JSON on stdout, with the machine's monotonic time; what
handlers do is a line in the file *runs*, which all workers of a test share.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import trio

from stagedoor.broker.connection import Link
from stagedoor.broker.redis import DeliverySettings, RedisDeliveries
from stagedoor.broker.redis_calls import RedisCalls
from stagedoor.cli.flow_wiring import call_settings, flow_parts
from stagedoor.cli.process import ServiceProcess, run_service
from stagedoor.core.handler import HandlerSpec
from stagedoor.core.keys import Keys
from stagedoor.events import Event, EventStream
from stagedoor.settings import Settings
from stagedoor.worker import Given, HeldDelivery, StopRequest, WorkerSettings, heeding, run_worker
from stagedoor.worker.identity import current_identity, is_provably_gone
from tests.process.programs.flows import Flows


class Handlers:
    """What jobs of the tests do; the kind is the method's name."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._runs = os.open(folder / "runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def _note(self, what: str, job: Any, held: HeldDelivery) -> None:
        line = {
            "what": what,
            "worker": self._name,
            "pid": os.getpid(),
            "order_id": job.order_id,
            "entry_id": job.entry_id,
            "deliveries": held.tenure.deliveries,
            "at": time.monotonic(),
        }
        os.write(self._runs, (json.dumps(line) + "\n").encode())

    def quick(self, job: Any, held: HeldDelivery) -> None:
        """Be done at once."""
        self._note("end", job, held)

    def sleep(self, job: Any, held: HeldDelivery) -> None:
        """Take the seconds that the trace says."""
        self._note("start", job, held)
        time.sleep(float(job.trace))
        self._note("end", job, held)

    def gated(self, job: Any, held: HeldDelivery) -> None:
        """Run until the gate is open; look as often as the trace says, in seconds, else all the time."""
        self._note("start", job, held)
        while not (self._folder / "open").exists():
            time.sleep(float(job.trace or 0.005))
        self._note("end", job, held)

    def stuck(self, job: Any, held: HeldDelivery) -> None:
        """Never return where the worker is called as the trace says; else be done at once."""
        self._note("start", job, held)
        if job.trace == self._name:
            threading.Event().wait()
        self._note("end", job, held)

    def segfault(self, job: Any, held: HeldDelivery) -> None:
        """Read where nothing is, as a library with a fault does."""
        self._note("start", job, held)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        ctypes.string_at(0)

    def sigkill(self, job: Any, held: HeldDelivery) -> None:
        """Have the process ended as the OOM killer does."""
        self._note("start", job, held)
        os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()

    async def shielded(self, job: Any, held: HeldDelivery) -> None:
        """Heed no cancellation where the worker is called as the trace says; else be done at once."""
        self._note("start", job, held)
        if self._name in job.trace:
            with trio.CancelScope(shield=True, deadline=float("inf")):
                await trio.sleep_forever()
        self._note("end", job, held)

    def specs(self) -> dict[str, HandlerSpec]:
        """Return the handlers by kind."""
        functions = (self.quick, self.sleep, self.gated, self.stuck, self.segfault, self.sigkill, self.shielded)
        return {function.__name__: HandlerSpec(kind=function.__name__, function=function) for function in functions}


def tell(event: Event) -> None:
    """Write an event to stdout."""
    line = {"event": event.name, "monotonic": time.monotonic(), **event.fields()}
    sys.stdout.write(json.dumps(line, default=str) + "\n")
    sys.stdout.flush()


@attrs.frozen
class Telling:
    """The process; tells when it is given a deadline, and which."""

    process: ServiceProcess

    def serve(
        self, pass_on: Callable[[int], None], code_at_deadline: Callable[[], int], *, grace_s: float, hurry_s: float
    ) -> None:
        """Pass signals on from now on."""
        say("serving", grace_s=grace_s, hurry_s=hurry_s)
        self.process.serve(pass_on, code_at_deadline, grace_s=grace_s, hurry_s=hurry_s)

    def end_within(self, seconds: float) -> None:
        """End the process in so many seconds if it has not ended by itself."""
        say("must_end", within_s=seconds)
        self.process.end_within(seconds)


async def serve(how: dict[str, Any], process: ServiceProcess) -> int:
    """Run the worker until a signal ends it."""
    settings = Settings.load({}, how["settings"])
    link = Link(settings.redis_url, block_ms=settings.block_ms)
    deliveries = RedisDeliveries(
        link,
        Keys(settings.namespace),
        settings=DeliverySettings(
            wanted_name=settings.name,
            liveness_ttl_ms=round(settings.liveness_ttl_s * 1000),
            reclaim_idle_ms=round(settings.reclaim_idle_s * 1000),
        ),
        is_process_dead=is_provably_gone,
    )
    stop = StopRequest()
    async with heeding(Telling(process), stop, settings.grace_s):
        say("listening")
        folder = Path(how["folder"])
        flows = flow_parts(
            Flows(folder, settings.name).specs(how.get("flows", [])),
            RedisCalls(link, Keys(settings.namespace), settings=call_settings(settings), owner=deliveries),
            settings=settings,
            make_context=lambda _job, held: held,
        )
        code = await run_worker(
            Given(
                deliveries=deliveries,
                settings=WorkerSettings.of(settings),
                identity=current_identity(),
                handlers={**Handlers(folder, settings.name).specs(), **flows.handlers},
                make_context=flows.make_context,
                chores=flows.chores,
                stop=stop,
                events=EventStream(tell),
            ),
            check_server=link.check_server,
        )
    return int(code)


def say(event: str, **fields: Any) -> None:
    """Write what is no event of the worker to stdout."""
    sys.stdout.write(json.dumps({"event": event, "monotonic": time.monotonic(), **fields}) + "\n")
    sys.stdout.flush()


def keep(how: dict[str, Any]) -> None:
    """Run a worker in a child for each line of stdin, one after the other, as whoever keeps services does.

    A child has imported everything before it is born: so a start takes a tenth of the time.
    """
    for _line in sys.stdin:
        child = os.fork()
        if child == 0:
            run_service(lambda process: trio.run(serve, how, process))
        say("born", pid=child)
        _pid, status = os.waitpid(child, 0)
        say("died", code=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if given.get("is_kept"):
        keep(given)
    else:
        run_service(lambda process: trio.run(serve, given, process))
