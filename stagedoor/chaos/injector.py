"""Does what is planned to the processes, to Redis, to the connections and to the clocks, and undoes it.

One thread calls `tick` often; what has to happen later waits in a list. A
process that has ended, killed or by itself, is started again after a while, as a
supervisor would.
"""

import datetime as dt
import heapq
import itertools
import json
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from stagedoor.broker.private_server import PrivateRedis
from stagedoor.broker.scratch import Scratch
from stagedoor.chaos.faults import Fault, Planned
from stagedoor.chaos.proxy import Mode, Proxy, Spoil
from stagedoor.chaos.recovery import Recoveries
from stagedoor.chaos.skewed import write_offset
from stagedoor.errors import BrokerError
from stagedoor.rehearsal.crew import RELAY, Crew
from stagedoor.rehearsal.kill import kill_holding
from stagedoor.rehearsal.watch import Watch

RELAY_SHARE = 0.12
"""Of the kills: the relay's; nothing is pending under it, but rows may be published and not marked."""
AT_ONCE_SHARE = 0.6
"""Of the ended processes: started again within a second. The others stay away until everybody knows."""
SOON_S = 1.0
PATIENCE_S = 5.0
"""How long a kill waits for a worker that holds something, before it takes one as it is."""
RETRY_S = 0.03
FROZEN_FACTOR = (1.2, 1.7)
"""How long a worker is frozen, in time to live of its lease."""
OLD_ENOUGH = 2.0
"""Times to live after which a worker that was started has surely begun to sweep."""
OLD_S = (2.0, 8.0)
"""How old the data is that Redis may come back with."""
DOWN_S = (0.1, 3.0)
SPOILED_S = (0.5, 4.0)
MOST_DELAY_S = 0.3
MOST_OFF_S = 3600.0
SPOILS = (Spoil.DROP, Spoil.DELAY, Spoil.DOUBLE, Spoil.FREEZE, Spoil.RESET)


@attrs.frozen(kw_only=True)
class Stage:
    """What faults are done to.

    *journal* takes a line for each thing that is done; *ttl_s* is the time to live of a
    worker's lease; *look* reads the logs to their ends.
    """

    crew: Crew
    redis: PrivateRedis
    scratch: Scratch
    watch: Watch
    proxies: Mapping[str, Proxy]
    clocks: Mapping[str, Path]
    folder: Path
    journal: Path
    ttl_s: float
    look: Callable[[], None]


class Injector:
    """Runs a plan of faults.

    Args:
        stage: what they are done to.
        plan: when they begin, in seconds from `begin`.
        seed: of everything that is left to chance.

    *losses* counts how often Redis has come back without what it had confirmed.
    """

    def __init__(self, stage: Stage, plan: list[Planned], *, seed: int) -> None:
        self._stage = stage
        self._plan = deque(plan)
        self._rng = random.Random(f"injector {seed}")
        self._began = 0.0
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._tie = itertools.count()
        self._frozen: set[str] = set()
        self._away: set[str] = set()
        self._started_at: dict[str, float] = {}
        self._kill_due_at: float | None = None
        self._next_try_at = 0.0
        self._is_redis_down = False
        self._is_healing = False
        self._copies = 0
        self.recoveries = Recoveries(stage.watch)
        self.done: Counter[str] = Counter()
        self.exits: Counter[str] = Counter()
        self.redis_at = 0.0
        self.losses = 0

    def begin(self) -> None:
        """Let the time of the plan begin."""
        self._began = time.monotonic()
        self._started_at = dict.fromkeys(self._stage.crew.live_workers, float("-inf"))

    def tick(self) -> None:
        """Do what is due, start again what has ended, and take note of what has recovered."""
        now = time.monotonic()
        self._supervise()
        while self._later and self._later[0][0] <= now:
            heapq.heappop(self._later)[2]()
        while self._plan and self._plan[0].at_s <= now - self._began:
            self._inject(self._plan.popleft().fault)
        if self._kill_due_at is not None:
            self._try_kill()
        self.recoveries.look()

    @property
    def is_redis_down(self) -> bool:
        """Whether Redis has been ended and has not been started again."""
        return self._is_redis_down

    def heal(self) -> None:
        """Do nothing more, and undo at once whatever waits to be undone."""
        self._plan.clear()
        self._kill_due_at = None
        self._is_healing = True
        while self._later:
            heapq.heappop(self._later)[2]()

    def _note(self, what: str, *kinds: str, **details: Any) -> None:
        """Count a fault, by its kind and by what exactly it was, and write it down with its time."""
        for kind in (what, *kinds):
            self.done[kind] += 1
        stamp = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        with self._stage.journal.open("a", encoding="utf-8") as journal:
            journal.write(json.dumps({"at": stamp, "fault": what, "kinds": kinds, **details}) + "\n")

    # -- the parts of a tick --------------------------------------------------------

    def _in(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._tie), what))

    def _inject(self, fault: Fault) -> None:
        match fault:
            case Fault.KILL if self._rng.random() < RELAY_SHARE and self._stage.crew.is_live(RELAY):
                self._kill_relay()
            case Fault.KILL:
                self._kill_due_at = time.monotonic()
            case Fault.STOP:
                self._freeze()
            case Fault.REDIS_RESTART:
                self._restart_redis()
            case Fault.PROXY:
                self._spoil()
            case Fault.CLOCK:
                self._jump()

    def _supervise(self) -> None:
        for name, code in self._stage.crew.lost().items():
            if name not in self._away:
                self.exits[f"{'relay' if name == RELAY else 'worker'} ended by itself with {code}"] += 1
                self._start_later(name)

    def _start_later(self, name: str) -> None:
        """Start an ended process again: at once, or when the others must have missed it."""
        self._away.add(name)
        self._stage.watch.forget_running(name)
        is_soon = self._rng.random() < AT_ONCE_SHARE
        wait_s = self._rng.uniform(0, SOON_S) if is_soon else self._stage.ttl_s * self._rng.uniform(1.3, 1.8)
        self._in(wait_s, lambda: self._start(name))

    def _start(self, name: str) -> None:
        self._away.discard(name)
        self._started_at[name] = time.monotonic()
        self._stage.crew.start(name)

    # -- faults -----------------------------------------------------------------------

    def _standing(self) -> list[str]:
        """Return the workers that run and are not frozen."""
        return [name for name in self._stage.crew.live_workers if name not in self._frozen]

    def _try_kill(self) -> None:
        """Kill a worker if this is a good moment: it holds something, or none has for long."""
        now = time.monotonic()
        if now < self._next_try_at or self._is_redis_down:
            return
        self._next_try_at = now + RETRY_S
        workers = self._standing()
        if not workers:
            return
        worker = self._rng.choice(workers)
        running = len(self._stage.watch.workers[worker].running)
        due_at = now if self._kill_due_at is None else self._kill_due_at
        is_patient = now - due_at < PATIENCE_S
        if running == 0 and is_patient:
            return
        try:
            killed = kill_holding(
                self._stage.crew, self._stage.scratch, worker, at_least=int(is_patient), running=running
            )
        except BrokerError:
            self._stage.crew.thaw(worker)
            return
        if killed is None:
            return
        self._kill_due_at = None
        self.recoveries.disturb()
        self._note(
            "kill", *(["kill while it held entries"] if killed.held else []), of=worker, held=sorted(killed.held)
        )
        self._stage.look()
        self.recoveries.add(killed, is_disturbed=not self._has_successor())
        self._start_later(worker)

    def _has_successor(self) -> bool:
        """Whether a worker stands that has been there for long enough to sweep others."""
        now = time.monotonic()
        return any(now - self._started_at[name] > OLD_ENOUGH * self._stage.ttl_s for name in self._standing())

    def _kill_relay(self) -> None:
        self._stage.crew.kill(RELAY)
        self._note("kill", "kill of the relay", of=RELAY)
        self._start_later(RELAY)

    def _freeze(self) -> None:
        workers = self._standing()
        if not workers:
            return
        worker = self._rng.choice(workers)
        self._stage.crew.freeze(worker)
        self._frozen.add(worker)
        self.recoveries.disturb()
        frozen_s = self._stage.ttl_s * self._rng.uniform(*FROZEN_FACTOR)
        self._note("stop", of=worker, seconds=frozen_s)
        self._in(frozen_s, lambda: self._thaw(worker))

    def _thaw(self, worker: str) -> None:
        self._frozen.discard(worker)
        if self._stage.crew.is_live(worker):
            self._stage.crew.thaw(worker)

    def _restart_redis(self) -> None:
        if self._is_redis_down:
            return
        how = self._rng.choice(("with its data", "with its data", "with old data", "empty"))
        if how != "with old data":
            self._end_redis(how, None)
            return
        self._copies += 1
        copy = self._stage.folder / f"old-{self._copies}"
        self._stage.redis.copy_data(copy)
        self._in(self._rng.uniform(*OLD_S), lambda: self._end_redis(how, copy))

    def _end_redis(self, how: str, data: Path | None) -> None:
        if self._is_redis_down or self._is_healing:
            return
        self._is_redis_down = True
        self.recoveries.disturb()
        self._stage.redis.kill()
        down_s = self._rng.uniform(*DOWN_S)
        self._note("redis-restart", f"redis-restart {how}", seconds=down_s)
        self._in(down_s, lambda: self._start_redis(how, data))

    def _start_redis(self, how: str, data: Path | None) -> None:
        self._stage.redis.start_again(data, is_empty=how == "empty")
        self._is_redis_down = False
        self.redis_at = time.monotonic()
        if how != "with its data":
            self.losses += 1
            self._stage.look()
            self.recoveries.give_up()

    def _spoil(self) -> None:
        name = self._rng.choice(sorted(self._stage.proxies))
        spoil = self._rng.choice(SPOILS)
        proxy = self._stage.proxies[name]
        if spoil is Spoil.RESET:
            proxy.reset_all()
        proxy.mode = Mode(spoil=spoil, share=self._rng.choice((0.05, 0.3, 1.0)), delay_s=MOST_DELAY_S)
        spoiled_s = self._rng.uniform(*SPOILED_S)
        self._note("proxy", f"proxy {spoil.value}", of=name, share=proxy.mode.share, seconds=spoiled_s)
        self._in(spoiled_s, lambda: self._unspoil(proxy))

    def _unspoil(self, proxy: Proxy) -> None:
        proxy.mode = Mode()

    def _jump(self) -> None:
        name = self._rng.choice(sorted(self._stage.clocks))
        off_s = self._rng.uniform(-MOST_OFF_S, MOST_OFF_S)
        write_offset(self._stage.clocks[name], off_s)
        self._note("clock", of=name, off_s=off_s)
