"""What this process holds: one object per delivery, from the claim to the settle.

The register is changed by the trio thread alone, and read by others too: they
rely on single dict operations being atomic, with and without the GIL.
"""

import itertools
from collections.abc import Callable, Sequence

from stagedoor.core.entry import Claimed
from stagedoor.core.handler import HandlerSpec
from stagedoor.core.job import Job
from stagedoor.core.tenure import Stream, Tenure
from stagedoor.errors import JobTimeout, LeaseLost
from stagedoor.worker.standing import Standing

Lend = Callable[[Callable[[], None], int], None]


def _lend_none(_work: Callable[[], None], _most: int) -> None:
    """Have no slot: it has not started."""


class HeldDelivery:
    """One delivery in this process' hands.

    Lives from the claim until its outcome is written or refused. *tenure* is
    replaced when the same entry is handed to us again (see `Register.add`).
    *number* tells claims in order; *was_refused* that `check` said to stop. *refused_at* says where the
    handler has stopped because somebody else has the entry: at a ``check``, or at a ``pass`` of a flow.
    *lend* runs a function in so many further slots at most, those that are free at this instant; it may
    be called in any thread.
    """

    __slots__ = (
        "_standing", "body_gone", "claimed", "deadline", "job", "lend", "lost", "number", "refused_at", "run_s",
        "spec", "started_at", "tenure", "was_refused",
    )  # fmt: skip

    def __init__(self, claimed: Claimed, standing: Standing, number: int = 0) -> None:
        self.claimed = claimed
        self.number = number
        self.tenure: Tenure = claimed.tenure
        self.job: Job | None = None
        self.spec: HandlerSpec | None = None
        self.lost = False
        self.was_refused = False
        self.refused_at = ""
        self.body_gone = False
        self.started_at: float | None = None
        self.deadline: float | None = None
        self.run_s: float | None = None
        self.lend: Lend = _lend_none
        self._standing = standing

    @property
    def kind(self) -> str | None:
        """The job's kind; None for an entry that did not parse."""
        return self.job.kind if self.job is not None else None

    @property
    def is_async(self) -> bool:
        """Whether its handler runs as a trio task."""
        return self.spec is not None and self.spec.is_async

    @property
    def crashes(self) -> int:
        """How many processes have vanished while they held this job, in all its entries."""
        carried = self.job.crashes if self.job is not None else 0
        return carried + len(self.claimed.crash_log)

    def start(self, now: float) -> None:
        """Note that an attempt begins; *now* is monotonic seconds."""
        self.started_at = now
        timeout = self.spec.timeout if self.spec is not None else None
        self.deadline = None if timeout is None else now + timeout

    def check(self) -> None:
        """Return when this attempt may go on; call it between pages, and before anything irreversible.

        Raises:
            LeaseLost: somebody else owns the entry, or this process could not show for so long
                that it is taken for dead. Stop; what you write will be refused.
            JobTimeout: the kind's timeout has passed. Stop; the attempt has failed.
        """
        self.check_tenure()
        if self.deadline is not None and self._standing.now() > self.deadline:
            raise JobTimeout(f"entry {self.tenure.entry_id}: the timeout of {self.kind!r} has passed")

    def check_tenure(self) -> None:
        """Return when the entry is still ours, whatever the time.

        Raises:
            LeaseLost: as of `check`.
        """
        if self.lost or self._standing.is_cut_off():
            self.was_refused = True
            raise LeaseLost(f"entry {self.tenure.entry_id}: the tenure has lapsed")

    def limit(self, seconds: float | None) -> None:
        """Give what runs from now on so many seconds before its slot may be given up; None for no limit."""
        self.deadline = None if seconds is None else self._standing.now() + seconds


class Register:
    """All deliveries in this process' hands, by entry."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._held: dict[tuple[Stream, str], HeldDelivery] = {}
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, claimed: Claimed) -> HeldDelivery | None:
        """Take a delivery in hand.

        Returns:
            The new delivery; or None when this process holds the entry already and
            was handed it again (the group was re-created): the running one is adopted
            under the new tenure, and nothing is started twice.
        """
        known = self._held.get(claimed.tenure.entry)
        if known is not None:
            if claimed.crash_log:
                known.claimed = claimed
            known.tenure = claimed.tenure
            known.lost = False
            return None
        held = HeldDelivery(claimed, self._standing, next(self._numbers))
        self._held[claimed.tenure.entry] = held
        return held

    def remove(self, held: HeldDelivery) -> None:
        """Let go of it; harmless when it is gone already, also when its entry is in hand anew."""
        entry = held.tenure.entry
        if self._held.get(entry) is held:
            del self._held[entry]

    def holds(self, held: HeldDelivery) -> bool:
        """Return whether this delivery is still in hand."""
        return self._held.get(held.tenure.entry) is held

    def lose_everything(self) -> None:
        """Note that all tenures have lapsed: another process has our name."""
        for held in self.everything():
            held.lost = True

    def everything(self) -> list[HeldDelivery]:
        """Return all of them, oldest claim first."""
        return list(self._held.values())

    def tenures(self) -> Sequence[Tenure]:
        """Return all tenures, oldest claim first."""
        return [held.tenure for held in self.everything()]
