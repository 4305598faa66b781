"""A checkup of one namespace: what is there that nobody of ours would have left there.

Looks in bounded pages and changes nothing by itself; what can be put right is a
method of its own.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from stagedoor.broker.connection import Link, Script, mapped_errors
from stagedoor.broker.inspection import WorkerView, milliseconds, names_in_hash, or_none, row_or_none, worker_of
from stagedoor.core.keys import GROUP, Keys, is_worker_name
from stagedoor.core.tenure import Stream

PAGE = 500
MOST_DELAYED = 100_000
"""Delayed jobs that are looked at; a checkup must end."""
LATEST_MS = 11 * 366 * 24 * 3600 * 1000
"""No flow sleeps for longer than ten years, and no job is delayed for longer; a score past that is none of ours."""
MOST_CALLS = 20_000
"""Calls that are looked at, those first whose turn comes first."""
OVERDUE_MS = 180_000
"""A live worker looks after a call within a minute of its time; this late, none does."""


@attrs.frozen(kw_only=True)
class ConsumerView:
    """One consumer of a group; *worker* is its record, None where there is none."""

    stream: Stream
    name: str
    pending: int
    idle_s: float
    worker: WorkerView | None


@attrs.frozen(kw_only=True)
class DelayedView:
    """What is wrong with the delayed jobs.

    *bodiless* members that are not due yet have no body, *never_due* have a score that is no due time, and
    *homeless* bodies have no member: nothing will ever bring them back.
    """

    bodiless: tuple[str, ...] = ()
    never_due: tuple[str, ...] = ()
    homeless: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class ParkedCall:
    """A call that stands still until somebody resumes it, and why."""

    call_id: str
    flow: str
    reason: str
    error: str


@attrs.frozen(kw_only=True)
class CallsView:
    """What is wrong with the calls of flows.

    *overdue* counts those whose turn to be looked after is long past, and *timerless* are asleep, or wait with
    a time limit, without a timer.
    """

    overdue: int = 0
    timerless: tuple[str, ...] = ()
    parked: tuple[ParkedCall, ...] = ()


@attrs.frozen(kw_only=True)
class Examination:
    """What a checkup has found; *wrong_types* maps a key to the type it has and the one it must have."""

    wrong_types: Mapping[str, tuple[str, str]]
    groupless: tuple[Stream, ...]
    consumers: tuple[ConsumerView, ...]
    delayed: DelayedView
    memory_used: int
    memory_limit: int
    calls: CallsView = CallsView()


class Checkup:
    """Examines one namespace.

    Every method may raise `BrokerUnavailable`.

    Args:
        link: the connections to Redis.
        keys: of the namespace.
    """

    def __init__(self, link: Link, keys: Keys) -> None:
        self._client: Any = link.patient
        self._keys = keys
        self._mend = Script("mend")
        self._set_aside = Script("set_aside")

    def examine(self, also: Mapping[str, str] | None = None) -> Examination:
        """Look at everything that can be wrong.

        Args:
            also: further keys and the types that they must have: those that belong to an order book.
        """
        wrong = self._wrong_types({**self._shared, **(also or {})})
        streams = [(stream, key) for stream, key in zip(Stream, self._stream_keys, strict=True) if key not in wrong]
        groups = {stream: self._consumers(key) for stream, key in streams}
        with mapped_errors():
            info: dict[str, Any] = self._client.info("memory")
        has_delayed = not {self._keys.delayed, self._keys.delayed_body} & wrong.keys()
        keys_of_calls = {self._keys.calls, self._keys.delayed}
        return Examination(
            wrong_types={**wrong, **self._wrong_types(dict.fromkeys(map(self._keys.worker, _names(groups)), "hash"))},
            groupless=tuple(stream for stream, rows in groups.items() if rows is None),
            consumers=tuple(self._with_records(groups)),
            delayed=self._delayed() if has_delayed else DelayedView(),
            memory_used=int(info.get("used_memory", 0)),
            memory_limit=int(info.get("maxmemory", 0)),
            calls=self._calls() if keys_of_calls.isdisjoint(wrong) else CallsView(),
        )

    @property
    def _stream_keys(self) -> tuple[str, str]:
        return self._keys.stream, self._keys.critical

    @property
    def _shared(self) -> dict[str, str]:
        """Return the keys that all of the namespace share, and what each must be."""
        keys = self._keys
        return {
            keys.stream: "stream",
            keys.critical: "stream",
            keys.dead: "stream",
            keys.delayed: "zset",
            keys.delayed_body: "hash",
            keys.crashes: "hash",
            keys.trimmed: "hash",
            keys.calls: "zset",
            keys.calls_states: "hash",
        }

    def _wrong_types(self, expected: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        with mapped_errors(), self._client.pipeline(transaction=False) as pipe:
            for key in expected:
                pipe.type(key)
            found = [answer.decode() for answer in pipe.execute()]
        pairs = zip(expected.items(), found, strict=True)
        return {key: (is_type, must) for (key, must), is_type in pairs if is_type not in {must, "none"}}

    def _consumers(self, key: str) -> list[Any] | None:
        """Return the consumers of the group, None where the group is missing."""
        with mapped_errors(), self._client.pipeline(transaction=False) as pipe:
            pipe.xinfo_consumers(key, GROUP)
            rows = or_none(pipe.execute(raise_on_error=False)[0])
        return None if rows is None else list(rows)

    def _with_records(self, groups: Mapping[Stream, list[Any] | None]) -> Iterator[ConsumerView]:
        records = self._records(_names(groups))
        for stream, rows in groups.items():
            for row in rows or ():
                name = row["name"].decode("utf-8", "replace")
                yield ConsumerView(
                    stream=stream,
                    name=name,
                    pending=row["pending"],
                    idle_s=row["idle"] / 1000,
                    worker=records.get(name),
                )

    def _records(self, names: Sequence[str]) -> dict[str, WorkerView]:
        with mapped_errors(), self._client.pipeline(transaction=True) as pipe:
            pipe.time()
            for name in names:
                pipe.hgetall(self._keys.worker(name))
            (seconds, microseconds), *found = pipe.execute(raise_on_error=False)
        now_ms = seconds * 1000 + microseconds // 1000
        pairs = ((name, row_or_none(record)) for name, record in zip(names, found, strict=True))
        return {name: worker_of(name, record, now_ms=now_ms) for name, record in pairs if record}

    # -- delayed jobs -------------------------------------------------------------------

    def _delayed(self) -> DelayedView:
        with mapped_errors():
            seconds, _microseconds = self._client.time()
        bodiless: list[str] = []
        never_due: list[str] = []
        members: set[bytes] = set()
        for member, score, has_body in self._members():
            members.add(member)
            # One that is due becomes a dead letter at the next promotion anyhow.
            if not has_body and score > seconds * 1000 + 1000:
                bodiless.append(_shown(member))
            if score > seconds * 1000 + LATEST_MS:
                never_due.append(_shown(member))
        bodies = itertools.chain.from_iterable(names_in_hash(self._client, self._keys.delayed_body, MOST_DELAYED))
        strangers = [member for member in bodies if member not in members]
        return DelayedView(
            bodiless=tuple(bodiless),
            never_due=tuple(never_due),
            homeless=tuple(_shown(member) for member in strangers if self._is_homeless(member)),
        )

    def _is_homeless(self, member: bytes) -> bool:
        """Look again at a body whose member was not among those seen: jobs come and go meanwhile."""
        with mapped_errors(), self._client.pipeline(transaction=True) as pipe:
            pipe.zscore(self._keys.delayed, member)
            pipe.hexists(self._keys.delayed_body, member)
            score, has_body = pipe.execute()
        return score is None and bool(has_body)

    def _members(self) -> Iterator[tuple[bytes, float, bool]]:
        for start in range(0, MOST_DELAYED, PAGE):
            with mapped_errors():
                page = self._client.zrange(self._keys.delayed, start, start + PAGE - 1, withscores=True)
                if not page:
                    return
                with self._client.pipeline(transaction=False) as pipe:
                    for row in page:
                        pipe.hexists(self._keys.delayed_body, row[0])
                    has_bodies = pipe.execute()
            for (member, score), has_body in zip(page, has_bodies, strict=True):
                yield member, float(score), bool(has_body)

    # -- calls of flows -------------------------------------------------------------------

    def _calls(self) -> CallsView:
        now_ms = self._now_ms()
        with mapped_errors():
            overdue = int(self._client.zcount(self._keys.calls, "-inf", now_ms - OVERDUE_MS))
        timerless: list[str] = []
        parked: list[ParkedCall] = []
        for call_id, record, has_timer in self._call_records():
            state, flow, due, queued, reason, error = record
            if state == "parked":
                parked.append(ParkedCall(call_id=call_id, flow=flow, reason=reason, error=error))
            # What is due now may be under way into its stream.
            if state in {"sleeping", "waiting"} and not (queued or has_timer) and due.isdigit() and int(due) > now_ms:
                timerless.append(call_id)
        return CallsView(
            overdue=overdue,
            timerless=tuple(call_id for call_id in timerless if self._is_timerless(call_id)),
            parked=tuple(parked),
        )

    def _now_ms(self) -> int:
        with mapped_errors():
            return milliseconds(self._client.time())

    def _call_records(self) -> Iterator[tuple[str, list[str], bool]]:
        """Yield some fields of each call, and whether it has a timer; pages are of one moment, the whole is not."""
        for start in range(0, MOST_CALLS, PAGE):
            with mapped_errors():
                page: list[bytes] = self._client.zrange(self._keys.calls, start, start + PAGE - 1)
            if not page:
                return
            ids = [member.decode("utf-8", "replace") for member in page]
            with mapped_errors(), self._client.pipeline(transaction=True) as pipe:
                for call_id in ids:
                    pipe.hmget(self._keys.call_status(call_id), _CALL_FIELDS)
                    pipe.zscore(self._keys.delayed, timer_of(call_id))
                answers = [row_or_none(answer) for answer in pipe.execute(raise_on_error=False)]
            for call_id, row, timer in zip(ids, answers[::2], answers[1::2], strict=True):
                record = row or [None] * len(_CALL_FIELDS)
                yield call_id, [(value or b"").decode("utf-8", "replace") for value in record], timer is not None

    def _is_timerless(self, call_id: str) -> bool:
        """Look again at one call: it may have gone on while the others were looked at."""
        with mapped_errors(), self._client.pipeline(transaction=True) as pipe:
            pipe.hmget(self._keys.call_status(call_id), _CALL_FIELDS)
            pipe.zscore(self._keys.delayed, timer_of(call_id))
            (state, _flow, due, queued, *_), timer = pipe.execute()
        return state in {b"sleeping", b"waiting"} and not queued and bool(due) and timer is None

    # -- putting right ---------------------------------------------------------------------

    def mend(self, members: Sequence[str]) -> int:
        """Make delayed jobs due now that would never be; returns how many.

        The next promotion puts each back into its stream, or makes a dead letter of what has no body.

        **Durability**: due when it returns; safe to repeat.
        """
        if not members:
            return 0
        with mapped_errors():
            seconds, _microseconds = self._client.time()
        args = [seconds * 1000 + LATEST_MS, *(_bytes(member) for member in members)]
        return int(self._mend(self._client, [self._keys.delayed, self._keys.delayed_body], args))

    def set_aside(self, key: str, must_be: str) -> str | None:
        """Give a key of the wrong type another name and return it; what is in it is kept.

        Returns:
            None where the key is of the type *must_be* by now, or gone: then nothing was done.

        **Durability**: renamed when it returns; safe to repeat. The new name is outside of everything that we read.
        """
        with mapped_errors():
            seconds, microseconds = self._client.time()
        name = f"{key}:misplaced:{seconds}{microseconds:06}"
        return name if self._set_aside(self._client, [key, name], [must_be]) else None


_CALL_FIELDS = (".state", ".flow", ".due", ".queued", ".parked", ".why")


def timer_of(call_id: str) -> str:
    """Return the member of a call's timer among the delayed jobs, as the scripts name it."""
    return f"flow:{call_id}"


def _names(groups: Mapping[Stream, list[Any] | None]) -> list[str]:
    """Return the names of the consumers that may be workers."""
    names = {row["name"].decode("utf-8", "replace") for rows in groups.values() for row in rows or ()}
    return sorted(name for name in names if is_worker_name(name))


def _shown(member: bytes) -> str:
    return member.decode("utf-8", "surrogateescape")


def _bytes(member: str) -> bytes:
    return member.encode("utf-8", "surrogateescape")
