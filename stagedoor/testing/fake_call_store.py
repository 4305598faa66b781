"""The memory behind the fake journal: what the scripts about flow calls share, on dictionaries.

`FakeBroker.calls` is one `CallStore`; every `FakeCalls` of that broker works on it, under the
broker's lock. It keeps the very texts that Redis would keep, so that a test can compare them.
"""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from stagedoor.core.call import CallState
from stagedoor.core.codec import pack
from stagedoor.core.journal import seen_words, step_text
from stagedoor.core.tenure import Stream

if TYPE_CHECKING:
    from stagedoor.core.call import StepWrite
    from stagedoor.testing.fake_store import FakeBroker


@attrs.define
class FakeCall:
    """The three keys of one call; *lease* is its text and the ms at which it ends."""

    status: dict[str, str] = attrs.Factory(dict)
    meta: dict[str, str] = attrs.Factory(dict)
    lease: tuple[str, int] | None = None
    expires_ms: int | None = None


class CallStore:
    """All calls of one pretend Redis.

    *index* says of each call when to look at it next, and in which state it was counted.
    """

    def __init__(self, broker: "FakeBroker") -> None:
        self._broker = broker
        self.calls: dict[str, FakeCall] = {}
        self.index: dict[str, tuple[int, CallState]] = {}
        self.states: Counter[CallState] = Counter()

    def find(self, call_id: str) -> FakeCall | None:
        """Return a call, unless it has expired or never was."""
        found = self.calls.get(call_id)
        if found is not None and found.expires_ms is not None and found.expires_ms <= self._broker.now_ms():
            del self.calls[call_id]
            return None
        return found

    def lease(self, call: FakeCall) -> str | None:
        """Return the text of its lease, unless that has run out."""
        if call.lease is not None and call.lease[1] <= self._broker.now_ms():
            call.lease = None
        return call.lease[0] if call.lease else None

    def set_state(self, call_id: str, call: FakeCall, state: CallState, *, look_ms: int) -> None:
        """Write a call's state, count it there, and say when to look at it next."""
        old = self.index.get(call_id)
        if old is not None:
            self.states[old[1]] -= 1
        self.states[state] += 1
        call.status[".state"] = state.value
        self.index[call_id] = (look_ms, state)

    def forget(self, call_id: str) -> None:
        """Take a call that has expired off the index."""
        _, state = self.index.pop(call_id)
        self.states[state] -= 1
        self.drop_timer(call_id)

    # -- entries and timers -----------------------------------------------------------

    def _continuation(self, call_id: str, call: FakeCall) -> dict[str, str]:
        known = {name: call.status.get(f".{name}", "") for name in ("flow", "request_id", "trace")}
        return {
            "kind": known["flow"],
            "call_id": call_id,
            "request_id": known["request_id"],
            "trace": known["trace"],
        }

    def queue(self, call_id: str, call: FakeCall, stream: Stream) -> None:
        """Add an entry for a call and say so in its status."""
        entry_id = self._broker.add(self._continuation(call_id, call), stream=stream)
        call.status.pop(".due", None)
        call.status.update({".queued": f"{stream.value}:{entry_id}", ".for": "a worker"})

    def is_there(self, place: str | None) -> bool:
        """Whether the entry of this place is still in its stream."""
        number, _, entry_id = (place or "").partition(":")
        ms, _, seq = entry_id.partition("-")
        return bool(number) and (int(ms), int(seq)) in self._broker.streams[Stream(int(number))].entries

    def is_queued(self, place: str | None) -> bool:
        """Whether what a call waits for is still there: an entry, or one that a worker has delayed."""
        if place is not None and place.startswith("d:"):
            return place[2:] in self._broker.delayed
        return self.is_there(place)

    def settle_entry(self, place: str | None) -> None:
        """Acknowledge and delete the entry of this place, and forget its crashes."""
        number, _, entry_id = (place or "").partition(":")
        if number:
            stream = self._broker.streams[Stream(int(number))]
            ms, _, seq = entry_id.partition("-")
            entry = (int(ms), int(seq))
            if stream.group is not None:
                stream.group.pending.pop(entry, None)
            stream.entries.pop(entry, None)
            self._broker.crashes.pop(f"{number}:{entry_id}", None)

    def set_timer(self, call_id: str, call: FakeCall, due_ms: int, stream: Stream) -> None:
        """Set a call's timer."""
        flat = [part.encode() for pair in self._continuation(call_id, call).items() for part in pair]
        self._broker.delayed_bodies[timer_of(call_id)] = pack([b"%d" % stream.value, *flat])
        self._broker.delayed[timer_of(call_id)] = due_ms

    def drop_timer(self, call_id: str) -> None:
        """Forget a call's timer."""
        self._broker.delayed.pop(timer_of(call_id), None)
        self._broker.delayed_bodies.pop(timer_of(call_id), None)

    # -- writing ------------------------------------------------------------------------

    def is_superfluous(self, call_id: str, place: str) -> bool:
        """Whether a call has another entry than this one, which then need not be delayed."""
        call = self.find(call_id)
        if call is None or _is_at_rest(call):
            return False
        if call.status[".state"] == "running":
            other = call.status.get(".entry")
            has_another = other != place and self.is_there(other)
        else:
            other = call.status.get(".queued")
            has_another = other != place and self.is_queued(other)
        if has_another:
            call.status[".wakes"] = str(int(call.status.get(".wakes", "0")) + 1)
        return has_another

    def wait_delayed(self, call_id: str, member: str, due_ms: int, *, waits_for: str) -> None:
        """Say in a call's status that it waits for an entry which was delayed under this member."""
        call = self.find(call_id)
        if call is None or _is_at_rest(call):
            return
        for name in (".due", ".entry"):
            call.status.pop(name, None)
        call.status.update({".queued": f"d:{member}", ".for": waits_for})
        call.lease = None
        self.set_state(call_id, call, CallState.WAITING, look_ms=due_ms)

    def park_dead(self, call_id: str, place: str, letter: Mapping[str, str]) -> None:
        """Park a call whose entry has become a dead letter, unless another pass of it runs."""
        call = self.find(call_id)
        if call is None or _is_at_rest(call):
            return
        lease = self.lease(call)
        if lease is not None and lease.split(" ")[0] != place:
            return
        for name in (".queued", ".due", ".for", ".entry"):
            call.status.pop(name, None)
        call.status.update({".parked": letter["reason"], ".why": letter["error"]})
        call.lease = None
        self.drop_timer(call_id)
        self.set_state(call_id, call, CallState.PARKED, look_ms=self._broker.now_ms())

    def take_bytes(self, call: FakeCall, more: int, most: int) -> bool:
        """Count bytes that a call is about to keep; return whether it may."""
        kept = int(call.status.get(".bytes", "0"))
        if more > 0 and kept + more > most:
            return False
        call.status[".bytes"] = str(kept + more)
        return True

    def write_step(
        self, call: FakeCall, epoch: int, write: "StepWrite", *, most_steps: int, most_bytes: int, freed: int = 0
    ) -> str | None:
        """Write one step and its value; return None, or why nothing was written."""
        text = step_text(write.step, epoch)
        current = call.status.get(write.key)
        if current == text and write.value in (None, call.meta.get(f"v:{write.key}")):
            return None
        words = " ".join((current or "").split(" ")[:2])
        if words not in (seen_words(write.seen), f"running {epoch}"):
            return "lost"
        more = len(text.encode()) - len((current or "").encode()) - freed
        if write.value is not None:
            more += len(write.value.encode()) - len(call.meta.get(f"v:{write.key}", "").encode())
        if current is None and int(call.status.get(".steps", "0")) >= most_steps:
            return "steps"
        if not self.take_bytes(call, more, most_bytes):
            return "bytes"
        if current is None:
            call.status[".steps"] = str(int(call.status.get(".steps", "0")) + 1)
        if write.value is not None:
            call.meta[f"v:{write.key}"] = write.value
        call.status[write.key] = text
        return None


def _is_at_rest(call: FakeCall) -> bool:
    """Whether no entry can make this call go on: it has ended, or is parked."""
    return CallState(call.status[".state"]).has_ended or call.status[".state"] == "parked"


def timer_of(call_id: str) -> str:
    """Return the member of a call's timer among the delayed jobs."""
    return f"flow:{call_id}"


def may_write(call: FakeCall | None, epoch: int) -> bool:
    """Whether the pass of this epoch may write about a call."""
    return call is not None and (call.status[".state"], call.status.get(".epoch")) == ("running", str(epoch))
