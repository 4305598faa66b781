"""The flow journal on a real Redis; see `stagedoor.broker.calls.Calls`.

What each verb does is written above its script; here arguments are packed and
replies unpacked, and nothing is decided.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

from stagedoor.broker.call_texts import (
    IDLE_LOOK_MS,
    LOOK_MS,
    MOST_LOOKED_AT,
    MOST_METADATA,
    CallSettings,
    checked_outcome,
    checked_value,
    checked_write,
    limit_of,
    misfit_text,
    phrase,
    to_ms,
)
from stagedoor.broker.calls import (
    Again,
    Begun,
    CallLine,
    CallsPage,
    Ended,
    Kept,
    Looked,
    NewCall,
    Pass,
    Recorded,
    Refused,
    Running,
    SignalReply,
    Started,
    TakenSignal,
    TimedOut,
    Told,
    Unsent,
)
from stagedoor.broker.connection import Link, Script, mapped_errors, sound_reply
from stagedoor.broker.inspection import row_or_none
from stagedoor.broker.redis import CAP_SHARE
from stagedoor.core.call import CallOutcome, CallState, Ending, Finish, GoOn, Park, Sleep, StepWrite, Wait
from stagedoor.core.journal import Journal, is_call_id, seen_words, step_text
from stagedoor.core.keys import GROUP, Keys
from stagedoor.core.tenure import Tenure
from stagedoor.errors import BrokerError, BrokerUnavailable, FlowLimitExceeded, GroupMissing, LeaseLost, NameTaken

_QUICK_BYTES = 16 * 1024
"""What is larger may take longer than a quick call is given."""


class Owner(Protocol):
    """The worker process whose passes these are."""

    @property
    def name(self) -> str:
        """The name it has joined under."""
        ...

    @property
    def incarnation(self) -> str:
        """The random id of its start."""
        ...

    def renew_record(self) -> None:
        """Write its record anew, where that was lost."""
        ...


class RedisCalls:
    """The calls of one namespace, on Redis.

    Args:
        link: the connections to Redis.
        keys: of the namespace.
        settings: see there.
        owner: the worker whose passes these are; without one no pass can begin.
    """

    def __init__(
        self, link: Link, keys: Keys, *, settings: CallSettings | None = None, owner: Owner | None = None
    ) -> None:
        self._link = link
        self._keys = keys
        self._settings = settings or CallSettings()
        self._owner = owner
        names = "start_call wake begin_pass record_step decide take_signal end_pass keep look"
        self._scripts = {name: Script(name) for name in names.split()}

    # -- for everybody ------------------------------------------------------------------

    def start(self, call: NewCall) -> Started:
        """Start a call."""
        metadata = [part for name, value in call.metadata.items() for part in (f"m:{name}", value)]
        if len(metadata) > 2 * MOST_METADATA:
            raise FlowLimitExceeded(f"call {call.call_id}: more than {MOST_METADATA} metadata")
        keys = self._keys
        names = [keys.stream, keys.delayed, keys.delayed_body, keys.calls, keys.calls_states]
        args = [
            int(self._settings.stream_maxlen * CAP_SHARE), self._settings.most_call_bytes, LOOK_MS, call.call_id,
            call.flow, to_ms(call.delay_s), call.request_id, call.trace, *metadata,
        ]  # fmt: skip
        is_large = sum(map(len, metadata)) > _QUICK_BYTES
        reply = self._run("start_call", [*names, *self._hashes(call.call_id)], args, patient=is_large)
        with sound_reply():
            word = _known(reply[0], b"created", b"there", b"full", b"bytes")
            if len(reply) == 3:  # noqa: PLR2004 - the word, the flow and the state
                return Started(word == b"created", reply[1].decode(), CallState(reply[2].decode()))
        if word == b"full":
            raise BrokerUnavailable("the stream is at its cap: no call is started before there is room")
        raise limit_of(self._settings, call.call_id, word.decode())

    def signal(self, call_id: str, name: str, value: str, *, token: str) -> Told:
        """Put a signal into the mailbox."""
        checked_value(self._settings, call_id, name, value)
        return self._tell(call_id, "signal", name, value, token)

    def cancel(self, call_id: str) -> Told:
        """Ask for the call's end."""
        return self._tell(call_id, "cancel")

    def resume(self, call_id: str) -> Told:
        """Let a parked call go on."""
        return self._tell(call_id, "resume")

    def wake(self, call_id: str) -> Told:
        """Let a pass look at it."""
        return self._tell(call_id, "wake")

    def _tell(self, call_id: str, verb: str, name: str = "", value: str = "", token: str = "") -> Told:
        keys = self._keys
        names = [keys.stream, keys.critical, keys.calls, keys.calls_states, *self._hashes(call_id), keys.delayed]
        limits = [self._settings.most_signals, self._settings.most_call_bytes]
        args = [LOOK_MS, call_id, verb, name, value, token, *limits]
        reply = self._run("wake", names, args, patient=_is_large(value))
        with sound_reply():
            return Told(reply.decode())

    def show(self, call_id: str) -> Journal | None:
        """Read both hashes at one moment."""
        with mapped_errors():
            pipe = self._link.patient.pipeline(transaction=True)
            for key in self._hashes(call_id):
                pipe.hgetall(key)
            status, meta = cast("list[dict[bytes, bytes]]", pipe.execute())
        with sound_reply():
            if b".state" not in status:
                return None
            return Journal(call_id, _text_pairs(status.items()), _text_pairs(meta.items()))

    def list_calls(self, *, state: CallState | None = None, after: str = "", limit: int = 100) -> CallsPage:
        """Read a page of the index, then a few fields of each."""
        ids, following = self._page_of_ids(after, limit)
        fields = [".state", ".flow", ".for", ".created", ".due"]
        with mapped_errors():
            pipe = self._link.patient.pipeline(transaction=False)
            for call_id in ids:
                pipe.hmget(self._keys.call_status(call_id), fields)
            rows = [row_or_none(row) for row in pipe.execute(raise_on_error=False)] if ids else []
        with sound_reply():
            lines = [line for call_id, row in zip(ids, rows, strict=True) if (line := _line(call_id, row)) is not None]
        return CallsPage(tuple(line for line in lines if state is None or line.state is state), following)

    def _page_of_ids(self, after: str, limit: int) -> tuple[list[str], str]:
        """Return a page of ids in the order (score, id), and where the next begins."""
        client, calls = self._link.quick, self._keys.calls
        score, _, last = after.partition(" ")
        with mapped_errors(), sound_reply():
            start = 0
            if after:
                now_at = client.zscore(calls, last)
                has_stayed = now_at is not None and f"{now_at:.4f}" == score
                rank = client.zrank(calls, last) if has_stayed else client.zcount(calls, "-inf", f"({score}")
                start = int(cast("int", rank or 0)) + has_stayed
            raw = cast("list[tuple[bytes, float]]", client.zrange(calls, start, start + limit, withscores=True))
            found = [(member.decode("utf-8", "replace"), f"{number:.4f}") for member, number in raw]
        page = found[:limit]
        following = f"{page[-1][1]} {page[-1][0]}" if len(found) > limit and page else ""
        return [call_id for call_id, _ in page], following

    def counts(self) -> dict[CallState, int]:
        """Read the counters."""
        with mapped_errors():
            raw = cast("dict[bytes, bytes]", self._link.quick.hgetall(self._keys.calls_states))
        with sound_reply():
            known = {name.decode(): int(count) for name, count in raw.items()}
        return {state: max(0, known.get(state.value, 0)) for state in CallState}

    def look(self) -> Looked:
        """Ask who is due, then look after those."""
        keys = self._keys
        now_ms = self._now_ms()
        with mapped_errors(), sound_reply():
            raw = cast(
                "list[bytes]", self._link.quick.zrangebyscore(keys.calls, "-inf", now_ms, start=0, num=MOST_LOOKED_AT)
            )
            texts = {member: member.decode("ascii", "replace") for member in raw}
            strange = [member for member, text in texts.items() if not is_call_id(text)]
            if strange:
                # No call can be called so. They would stay due for ever, and a hundred of them hide all others.
                self._link.quick.zrem(keys.calls, *strange)
        more = len(raw) == MOST_LOOKED_AT
        ids = [text for member, text in texts.items() if member not in strange]
        if not ids:
            return Looked(more=more)
        names = [keys.stream, keys.critical, keys.delayed, keys.delayed_body, keys.calls, keys.calls_states]
        names += [name for call_id in ids for name in (keys.call_status(call_id), keys.call_lease(call_id))]
        reply = self._run("look", names, [LOOK_MS, IDLE_LOOK_MS, self._settings.keep_ms, *ids])
        with sound_reply():
            looked, woken, timers, forgotten = map(int, reply)
        return Looked(looked, woken, timers, forgotten, more=more)

    def _now_ms(self) -> int:
        with mapped_errors():
            seconds, microseconds = self._link.quick.time()
        with sound_reply():
            return int(seconds) * 1000 + int(microseconds) // 1000

    # -- a worker's passes ----------------------------------------------------------------

    def begin_pass(self, tenure: Tenure, call_id: str) -> Begun | Refused:
        """Begin a pass; write the worker's record anew once where it is gone."""
        owner = self._owner
        if owner is None:
            raise BrokerError("no pass can begin without a worker")
        keys = self._keys
        names = [
            keys.stream, keys.critical, keys.worker(owner.name), keys.crashes, keys.delayed, keys.delayed_body,
            keys.calls, keys.calls_states, *self._hashes(call_id), keys.call_lease(call_id),
        ]  # fmt: skip
        args = [
            GROUP, owner.name, owner.incarnation, tenure.stream.value, tenure.entry_id, tenure.deliveries, call_id,
            self._settings.lease_ms, LOOK_MS,
        ]  # fmt: skip
        try:
            reply = self._run("begin_pass", names, args, patient=True)
            if _word_of(reply) == b"absent":
                owner.renew_record()
                reply = self._run("begin_pass", names, args, patient=True)
        except GroupMissing as error:
            raise LeaseLost(f"call {call_id}: the group is gone, and with it the tenure of its entry") from error
        return _begun(call_id, reply)

    def record_step(self, right: Pass, write: StepWrite) -> Recorded:
        """Record one step."""
        settings = self._settings
        args = [right.epoch, settings.most_steps, settings.most_call_bytes, *self._write(right, write)]
        reply = self._run("record_step", self._hashes(right.call_id), args, patient=_is_large(write.value))
        word = self._accepted(right.call_id, reply, b"ok", b"cancel")
        return Recorded(is_cancel_requested=word == b"cancel")

    def record_outcome(self, right: Pass, outcome: CallOutcome) -> None:
        """Decide how the call ends."""
        error, *result = self._outcome(right.call_id, outcome)
        args = [right.epoch, self._settings.most_call_bytes, outcome.state.value, error, *result]
        reply = self._run("decide", self._hashes(right.call_id), args, patient=_is_large(outcome.result))
        self._accepted(right.call_id, reply, b"ok")

    def take_signal(
        self, right: Pass, name: str, *, taken: StepWrite, timed_out: StepWrite | None, waiting: StepWrite
    ) -> SignalReply:
        """Take a signal, time out, or wait."""
        settings = self._settings
        due_at = waiting.step.due_at if timed_out is not None else None
        over = "" if timed_out is None else _step(right, timed_out)
        args = [
            right.epoch, settings.most_steps, settings.most_call_bytes, name,
            "" if due_at is None else to_ms(due_at), checked_write(taken).key, seen_words(taken.seen),
            _step(right, taken), over, _step(right, waiting),
        ]  # fmt: skip
        reply = self._run("take_signal", self._hashes(right.call_id), args, patient=True)
        word = self._accepted(right.call_id, _word_of(reply), b"taken", b"over", b"waits")
        with sound_reply():
            if word == b"taken":
                return TakenSignal(reply[1].decode())
        return TimedOut() if word == b"over" else Unsent()

    def end_pass(
        self, right: Pass, ending: Ending, *, write: StepWrite | None = None, must_leave: bool = False
    ) -> Ended | Again:
        """End a pass."""
        keys, settings = self._keys, self._settings
        names = [
            keys.stream, keys.critical, keys.crashes, keys.delayed, keys.delayed_body, keys.calls, keys.calls_states,
            *self._hashes(right.call_id), keys.call_lease(right.call_id),
        ]  # fmt: skip
        args = [
            GROUP, right.call_id, right.epoch, right.wakes, int(must_leave), LOOK_MS, settings.keep_ms,
            settings.most_steps, settings.most_call_bytes, *self._ending(right.call_id, ending),
            *(self._write(right, write) if write else ("", "", "", 0, "")),
        ]  # fmt: skip
        reply = self._run("end_pass", names, args, patient=True)
        if self._accepted(right.call_id, _word_of(reply), b"ended", b"again") == b"ended":
            return Ended()
        with sound_reply():
            now, journal = int(reply[1]) / 1000, _journal(right.call_id, reply[2], reply[3])
            return Again(_right(journal, right.epoch), now, journal)

    def keep(self, passes: Sequence[Running]) -> tuple[Kept, ...]:
        """Renew leases, and mark long steps."""
        if not passes:
            return ()
        names: list[str] = []
        args: list[Any] = [self._settings.lease_ms, self._settings.most_steps, self._settings.most_call_bytes]
        for one in passes:
            names += [self._keys.call_status(one.right.call_id), self._keys.call_lease(one.right.call_id)]
            args += [one.right.epoch, len(one.steps)]
            for write in one.steps:
                args += [checked_write(write).key, seen_words(write.seen), _step(one.right, write)]
        reply = self._run("keep", names, args)
        with sound_reply():
            words = [_known(word, b"ok", b"cancel", b"lost") for word in reply]
            return tuple(Kept(word != b"lost", word == b"cancel") for word in words[: len(passes)])

    # -- helpers ----------------------------------------------------------------------------

    def _hashes(self, call_id: str) -> list[str]:
        return [self._keys.call_status(call_id), self._keys.call_meta(call_id)]

    def _run(self, name: str, keys: Sequence[str], args: Sequence[Any], *, patient: bool = False) -> Any:
        client = self._link.patient if patient else self._link.quick
        sendable = [part.encode("utf-8", "backslashreplace") if isinstance(part, str) else part for part in args]
        return self._scripts[name](client, keys, sendable)

    def _write(self, right: Pass, write: StepWrite) -> list[Any]:
        """Return a step's key, what it is seen as, its text, whether there is a value, and the value."""
        value = checked_value(self._settings, right.call_id, write.key, write.value)
        return [
            checked_write(write).key, seen_words(write.seen), _step(right, write),
            int(write.value is not None), value,
        ]  # fmt: skip

    def _ending(self, call_id: str, ending: Ending) -> list[Any]:
        """Return verb, due time, phrase, misfit, error, whether there is a result, and the result."""
        match ending:
            case Sleep():
                return ["sleep", to_ms(ending.until), phrase(ending.waiting_for), misfit_text(ending.misfit), "", 0, ""]
            case Wait():
                until = "" if ending.until is None else to_ms(ending.until)
                return ["wait", until, phrase(ending.waiting_for), "", "", 0, ""]
            case GoOn():
                return ["go", "", "", "", "", 0, ""]
            case Park():
                return ["park", "", ending.reason, "", phrase(ending.error), 0, ""]
            case Finish():
                return [ending.outcome.state.value, "", "", "", *self._outcome(call_id, ending.outcome)]

    def _outcome(self, call_id: str, outcome: CallOutcome) -> list[Any]:
        """Return error, whether there is a result, and the result."""
        checked_outcome(self._settings, call_id, outcome)
        return [phrase(outcome.error), int(outcome.result is not None), outcome.result or ""]

    def _accepted(self, call_id: str, word: Any, *expected: bytes) -> bytes:
        """Return the word, if it is one of these; else raise what it says."""
        if type(word) is bytes and word in expected:
            return word
        with sound_reply():
            known = _known(word, b"lost", b"steps", b"bytes")
        if known == b"lost":
            raise LeaseLost(f"call {call_id}: this pass holds no longer, or the step is something else by now")
        raise limit_of(self._settings, call_id, known.decode())


# -- arguments and replies -------------------------------------------------------------------


def _step(right: Pass, write: StepWrite) -> str:
    return step_text(write.step, right.epoch)


def _is_large(value: str | None) -> bool:
    return value is not None and len(value) > _QUICK_BYTES


def _known(word: Any, *expected: bytes) -> bytes:
    return {known: known for known in expected}[word]


def _word_of(reply: Any) -> Any:
    with sound_reply():
        return reply[0]


def _begun(call_id: str, reply: Any) -> Begun | Refused:
    word = _word_of(reply)
    with sound_reply():
        if word == b"begun":
            journal = _journal(call_id, reply[3], reply[4])
            return Begun(_right(journal, int(reply[1])), int(reply[2]) / 1000, journal)
        known = _known(word, b"absent", b"taken", b"lost", b"busy", b"ended", b"parked", b"unknown")
    if known == b"taken":
        raise NameTaken("another process runs under this worker's name")
    if known == b"absent":
        raise BrokerUnavailable("the worker's record vanished twice in a row")
    if known == b"lost":
        raise LeaseLost(f"call {call_id}: the tenure of its entry has lapsed")
    return Refused(known.decode())


def _right(journal: Journal, epoch: int) -> Pass:
    wakes = journal.status.get(".wakes", "0")
    if not wakes.isdecimal():
        # Not for `sound_reply`: to ask again, as of a reply that does not fit, would begin passes for ever.
        raise BrokerError(f"call {journal.call_id}: expected a number of wakes, found {wakes[:40]!a}")
    return Pass(journal.call_id, epoch, int(wakes))


def _journal(call_id: str, status: bytes, meta: bytes) -> Journal:
    return Journal(call_id, _whole(status), _whole(meta))


def _whole(value: bytes) -> dict[str, str]:
    """Return a hash that was read as one value; its layout is described in `_whole.lua`."""
    line, newline, rest = value.partition(b"\n")
    parts = []
    at = 0
    for length in map(int, line.split()):
        parts.append(str(rest[at : at + length], "utf-8", "replace"))
        at += length
    if not newline or at != len(rest):
        raise ValueError(f"{len(rest)} bytes of a call, {at} were announced")
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _text_pairs(pairs: Iterable[tuple[bytes, bytes]]) -> Mapping[str, str]:
    return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in pairs}


def _line(call_id: str, row: Any) -> CallLine | None:
    """Return a call's line, None where its key is gone, or is no call's: one such call hides no others."""
    try:
        state, flow, waiting_for, created, due = ((value or b"").decode("utf-8", "replace") for value in row)
        return CallLine(
            call_id=call_id,
            flow=flow,
            state=CallState(state),
            waiting_for=waiting_for,
            created_at=int(created or 0) / 1000,
            due_at=int(due) / 1000 if due else None,
        )
    except (TypeError, ValueError):
        return None
