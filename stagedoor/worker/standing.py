"""Whether this process may trust itself: how its own beats and renewals have gone.

Two questions depend on it. A handler asks whether the process still counts as
alive: when no beat has gone through for a whole TTL, others have swept it. And
before the process sweeps others, its own beats and renewals must have gone
through for a whole TTL: after an outage everybody looks dead, and whoever
comes back first must not rob those who come back a second later.
"""

from collections.abc import Callable


class Standing:
    """The record of our own beats and renewals; times are monotonic seconds."""

    def __init__(self, ttl_s: float, clock: Callable[[], float]) -> None:
        self.now = clock
        self._ttl_s = ttl_s
        self._last_beat_at: float | None = None
        self._good_since: float | None = None

    def beat_succeeded(self, sent_at: float) -> None:
        """Note a beat; after a gap of a TTL (a freeze, an outage) the good time starts anew.

        Args:
            sent_at: when it was sent. That is what Redis has at best; a process that freezes between
                the reply and this call must not take the beat for a fresh one.
        """
        if self._last_beat_at is None or sent_at - self._last_beat_at > self._ttl_s or self._good_since is None:
            self._good_since = sent_at
        self._last_beat_at = sent_at

    def failed(self) -> None:
        """Note that a beat or a renewal did not go through."""
        self._good_since = None

    def is_cut_off(self) -> bool:
        """Return whether no beat has gone through for a TTL: others take us for dead."""
        return self._last_beat_at is not None and self.now() - self._last_beat_at > self._ttl_s

    def may_judge(self) -> bool:
        """Return whether we may sweep and reclaim: all has gone well for one full TTL, up to now."""
        if self._good_since is None or self.is_cut_off():
            return False
        return self.now() - self._good_since >= self._ttl_s
