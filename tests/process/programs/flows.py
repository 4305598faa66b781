"""The flows of the process tests: what their steps do is a line in the file *runs*, with epoch and attempt."""

import json
import os
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import stagedoor
from stagedoor.core.flow import FlowSpec

PARTS = 3
TURNS = 2
RESULT: dict[str, Any] = {"opened": 1, "parts": [0, 1, 4], "paid": "card", "flaky": 3, "total": 1}
KEYS = frozenset(
    ["opened", "reserve", "parts/0", "parts/1", "parts/2", "flaky", "turns/0/add", "turns/1/add", "notify"]
)
"""The operations of `ten` that run a function."""


class Flows:
    """Flows that write into a folder."""

    def __init__(self, folder: Path, worker: str) -> None:
        self._folder = folder
        self._worker = worker
        self._runs = os.open(folder / "runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def specs(self, names: list[str]) -> Mapping[str, FlowSpec]:
        """Return the flows of these names."""
        made = {"ten": self._ten, "hold": self._hold, "nap": self._nap}
        return {name: FlowSpec(name=name, function=made[name]) for name in names}

    def _note(self, what: str, call: Any, key: str) -> int:
        """Leave a line; return which attempt it is."""
        live = call._run.live
        # Not from the journal, which is as the pass has read it: what is due again at once is tried again within it.
        seen = next(step.unit.seen for step in live.running_steps() if step.unit.key == key)
        epoch, attempt = live.right.epoch, 1 if seen is None else seen.attempts + 1
        line = {"what": what, "call": call.id, "key": key, "epoch": epoch, "attempt": attempt, "worker": self._worker}
        os.write(self._runs, (json.dumps(line) + "\n").encode())
        return attempt

    def _noted(self, call: Any, key: str) -> None:
        self._note("run", call, key)

    def _once(self, call: Any, key: str, value: Any) -> Any:
        self._note("run", call, key)
        time.sleep(random.uniform(0, 0.01))
        return value

    def _ten(self, call: stagedoor.Call) -> dict[str, Any]:
        def once(key: str, value: Any) -> Callable[[], Any]:
            return lambda: self._once(call, key, value)

        opened = call.memo("opened", once("opened", 1))
        call.step("reserve", once("reserve", None))
        call.sleep("grace", 0.02)
        parts = call.gather("parts", range(PARTS), lambda part: self._once(call, f"parts/{part}", part * part))
        paid = call.wait_signal("paid")
        flaky = call.step("flaky", self._third_time, call, attempts=3, base=0.001, cap=0.001)
        total = 0
        for turn in call.sequence("turns", limit=TURNS):
            total += turn.step("add", once(f"turns/{turn.number}/add", turn.number))
        call.step("notify", once("notify", None))
        return {"opened": opened, "parts": parts, "paid": paid, "flaky": flaky, "total": total}

    def _third_time(self, call: Any) -> int:
        attempt = self._note("run", call, "flaky")
        if attempt < 3:
            raise ValueError("not yet")
        return attempt

    def _hold(self, call: stagedoor.Call) -> str:
        call.step("held", self._until_open, call)
        call.step("after", lambda: self._once(call, "after", None))
        return "done"

    def _until_open(self, call: Any) -> None:
        self._note("held", call, "held")
        gates = (self._folder / "open", self._folder / f"open-{self._worker}")
        while not any(gate.exists() for gate in gates):
            time.sleep(0.005)
        self._note("let go", call, "held")

    def _nap(self, call: stagedoor.Call) -> str:
        call.step("before", lambda: self._noted(call, "before"))
        until = float(call.metadata.get("until", 0))
        call.sleep("nap", max(0.0, until - time.time()) or float(call.metadata.get("seconds", 0)))
        call.step("after", lambda: self._noted(call, "after"))
        return "rested"
