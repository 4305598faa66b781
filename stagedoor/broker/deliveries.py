"""The port of the stream: what a worker may ask of the broker.

Each method is one atomic call (or a bounded run of them) and says what is
durable when it returns. All are synchronous and may be called from several
threads at once, except `wait`, which belongs to the reader alone.

Every method may raise:

* `BrokerUnavailable`: nothing is known of its effect. Repeat it as it stands;
  each is safe to repeat, `settle` through its batch number.
* `GroupMissing`: call `ensure_groups`, then repeat it.
* `NameTaken`: another process has this worker's name; call `rejoin`, then repeat it.
"""

import enum
from collections.abc import Collection, Sequence
from typing import Protocol

import attrs

from stagedoor.core.codec import Fields
from stagedoor.core.entry import Claimed
from stagedoor.core.outcome import Outcome
from stagedoor.core.tenure import Stream, Tenure

__all__ = [
    "Answer",
    "Answers",
    "Claimed",
    "Deliveries",
    "Identity",
    "Promoted",
    "Pulse",
    "ReadReply",
    "Reclaimed",
    "Renewal",
    "Settlement",
    "Swept",
    "Trimmed",
]


@attrs.frozen(kw_only=True)
class Identity:
    """Who a worker process is: enough for another process to prove that it is gone.

    *started* is the process' start time in clock ticks since boot, so that a
    reused pid is not taken for the same process.
    """

    incarnation: str
    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    started: int


@attrs.frozen(kw_only=True)
class Pulse:
    """How a worker is at one beat."""

    slots: int
    held: int = 0
    orphaned: int = 0
    stopping: bool = False


@attrs.frozen
class Trimmed:
    """An entry whose body somebody deleted while it was owed: a lost job, now a dead letter."""

    stream: Stream
    entry_id: str


@attrs.frozen
class ReadReply:
    """What a read handed out; *trimmed* were found in the pool without a body."""

    claimed: tuple[Claimed, ...]
    trimmed: tuple[Trimmed, ...] = ()


@attrs.frozen(kw_only=True)
class Settlement:
    """One outcome to be written.

    *body_gone* says that `renew` answered `Renewal.GONE` for this tenure;
    *has_crash_log* that there is a crash log to clear.
    """

    tenure: Tenure
    fields: Fields
    outcome: Outcome
    crash_log: tuple[str, ...] = ()
    body_gone: bool = False


class Answer(enum.Enum):
    """What became of one settlement."""

    ACCEPTED = "accepted"
    LOST = "lost"
    """The tenure has lapsed: nothing was written."""
    FAILED = "failed"
    """Redis refused what has to be written first: the entry stays pending; settle it again later."""


@attrs.frozen
class Answers:
    """The answers to a batch, in its order; *next_due_s* until the first job that it delayed, None for none."""

    answers: tuple[Answer, ...]
    next_due_s: float | None = None
    problems: tuple[str, ...] = ()


class Renewal(enum.Enum):
    """What became of one renewal."""

    RENEWED = "renewed"
    LOST = "lost"
    GONE = "gone"
    """Ours still, but somebody deleted the body; what is settled re-adds it where needed."""


@attrs.frozen
class Swept:
    """What one sweep did: (worker, entries moved, whether it counts as a crash) for each lapsed worker."""

    workers: tuple[tuple[str, int, bool], ...] = ()
    trimmed: tuple[Trimmed, ...] = ()


@attrs.frozen
class Reclaimed:
    """What one walk over the pending lists moved to the pool."""

    moved: int = 0
    trimmed: tuple[Trimmed, ...] = ()


@attrs.frozen
class Promoted:
    """What one promotion moved; *next_due_s* is None when nothing is delayed, 0 when more is due now."""

    moved: int = 0
    next_due_s: float | None = None
    pool: int = 0
    broken: int = 0


class Deliveries(Protocol):
    """The deliveries of one worker process."""

    @property
    def name(self) -> str:
        """The name this process has joined under."""
        ...

    def ensure_groups(self) -> bool:
        """Create the consumer group on both streams where it is missing, at the streams' beginning.

        Returns:
            Whether one was created.

        **Durability**: safe to repeat and to race; BUSYGROUP is success.
        """
        ...

    def join(self, identity: Identity, pulse: Pulse) -> str:
        """Take a worker's name: the wanted one, or the next free ``name.2``, ``name.3`` ….

        A name is free when its record is absent or lapsed, or its process is
        provably dead. What the name still holds goes to the pool first.

        Returns:
            The name taken.

        **Durability**: record written; a crash half-way leaves the old record, and entries in the pool.
        """
        ...

    def rejoin(self, held: Sequence[Claimed]) -> str:
        """Take a name anew after another process was found to have ours: ours again where it is free by now.

        Redis may have been restored from a copy in which an earlier process had it; or this process froze
        for so long that it was taken for dead. Either way it owns nothing any more under the old name, but
        for what a blocked read was handed under it since: that goes to the pool.

        Args:
            held: all that this process has in hand.

        Returns:
            The name taken.

        **Durability**: as of `join`; safe to repeat.
        """
        ...

    def beat(self, pulse: Pulse) -> None:
        """Say that this process lives; writes the record anew where it was flushed.

        Raises:
            NameTaken: another process has the name.
        """
        ...

    def retire(self) -> None:
        """Give back everything this name holds and remove its record: the last call of a clean stop.

        Where another process has the name by now there is nothing to give back, and nothing is done.
        """
        ...

    def read(self, limit: int, *, for_jobs: int = 0, leave: Collection[tuple[Stream, str]] = ()) -> ReadReply:
        """Claim up to *limit* entries without blocking: the pool's, then critical ones, then jobs.

        Args:
            limit: at least 1.
            for_jobs: how many of them critical entries may not take while jobs has work.
            leave: streams and ids of entries to be left in the pool, at most a few hundred.

        **Durability**: the entries are pending under this name when it returns; if
        the reply is lost they are too, and `stray` finds them.
        """
        ...

    def wait(self, block_ms: int) -> ReadReply:
        """Block until there is an entry, at most *block_ms*; returns it, or nothing.

        **Cancellation**: never abandon the thread that is in it, for it would take the
        next entry with it; call `unblock` until it returns.
        """
        ...

    def unblock(self) -> None:
        """End the blocked `wait`, if there is one just now; repeat it until `wait` has returned."""
        ...

    def stray(self, held: Sequence[Tenure]) -> int:
        """Move what Redis says is ours, but is not among *held*, to the pool; returns how many.

        Tenures are compared, not entries: one that lapsed here and was claimed again with the lost
        reply is no longer what we hold. Call it after a read whose reply was lost, before the next one.
        """
        ...

    def settle(self, batch: int, settlements: Sequence[Settlement]) -> Answers:
        """Write the outcomes, each only while its tenure holds, and acknowledge and delete the entries.

        Args:
            batch: grows by one with each new batch; repeat the number to repeat a batch.
            settlements: at most 500.

        **Durability**: each accepted outcome is on Redis. A repeated batch number
        returns the first answers and writes nothing.
        """
        ...

    def renew(self, tenures: Sequence[Tenure]) -> tuple[Renewal, ...]:
        """Reset the idle clocks of held entries; owners and counts stay."""
        ...

    def release(self, claimed: Sequence[Claimed]) -> int:
        """Put unfinished entries into the pool, claimable at once; returns how many were still ours."""
        ...

    def sweep(self) -> Swept:
        """Move the entries of lapsed workers to the pool, noting a crash for each unless they were stopping."""
        ...

    def reclaim(self) -> Reclaimed:
        """Walk both pending lists to their ends; move what has been idle too long to the pool."""
        ...

    def promote(self) -> Promoted:
        """Put at most 100 delayed jobs that are due by Redis' clock back into their streams."""
        ...
