"""Tenure: by what right a process writes about an entry.

A tenure is a consumer's name and the entry's delivery count, under one
incarnation of the process. Every change of owner raises the count and nothing
lowers it, so the pair names one period of ownership for ever. It is a fencing
number and not a crash counter. The broker compares it inside each script; a
tenure that has lapsed changes nothing.
"""

import enum

import attrs


class Stream(enum.Enum):
    """The two streams an entry can come from; the value is the scripts' number for it."""

    JOBS = 1
    CRITICAL = 2


@attrs.frozen
class Tenure:
    """One period of ownership of one entry."""

    stream: Stream
    entry_id: str
    deliveries: int

    @property
    def entry(self) -> tuple[Stream, str]:
        """What is owned: the same through all its tenures."""
        return (self.stream, self.entry_id)
