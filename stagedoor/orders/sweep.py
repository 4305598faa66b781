"""Files that no ticket needs: what crashes left behind, found and removed.

A worker that is killed between writing a file and its commit leaves it, and one
that is killed after voiding a ticket leaves that ticket's. The order's next job
removes what is over (`TicketStore.tidy`); an order that has no next job keeps
it. Nobody is harmed by such a file, but nobody would ever remove it.

A file may also belong to a render that is under way: it is written before its
commit. So a file is let alone until it is an hour old, and that alone decides
nothing: an attempt takes a file that it finds as its own, however old. Each
order is locked while its files are removed, as a commit locks it. A commit
either came before, and its file is valid and stays; or it comes after, finds the
file gone, is refused, and the job makes it again.
"""

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import attrs
import sqlalchemy as sa

from stagedoor.orders.engine import Database
from stagedoor.orders.parse import MAX_ID
from stagedoor.orders.schema import orders, tickets
from stagedoor.orders.store import TicketStore

__all__ = ["KEEP_S", "Leftover", "leftovers_of", "sweep"]

KEEP_S = 3600.0
"""Age from which on a file may be removed; a render and its commit take seconds."""

_ORDER = re.compile(r"\.?(\d+)-", re.ASCII)


@attrs.frozen(kw_only=True)
class Leftover:
    """One file that no valid ticket uses; *size* in bytes, *age_s* since it was written or given its name."""

    path: str
    size: int
    age_s: float

    @property
    def is_over(self) -> bool:
        """Whether it is old enough to be removed."""
        return self.age_s >= KEEP_S


def leftovers_of(store: TicketStore, stray: Iterable[str]) -> tuple[Leftover, ...]:
    """Return what is left of the files that no valid ticket uses, and of those that were being written."""
    return tuple(_look(store, [*stray, *store.temporaries()]))


def sweep(database: Database, store: TicketStore, paths: Iterable[str]) -> tuple[Leftover, ...]:
    """Remove those of the files that no valid ticket uses and that are an hour old, and return them.

    **Durability**: one short transaction for each order, which writes nothing. A removed file
    may be back after a power failure; the next call removes it. Safe to repeat, and by several
    processes at once.
    """
    of_order: dict[int, list[str]] = defaultdict(list)
    for path in paths:
        match = _ORDER.match(path.rpartition("/")[2])
        # No order has a larger number, and no database takes it: such a file is somebody else's.
        if match and int(match[1]) <= MAX_ID:
            of_order[int(match[1])].append(path)
    gone: list[Leftover] = []
    for order_id, of_one in sorted(of_order.items()):
        gone += _sweep_order(database, store, order_id, of_one)
    return tuple(gone)


def _sweep_order(database: Database, store: TicketStore, order_id: int, paths: Sequence[str]) -> list[Leftover]:
    if not any(found.is_over for found in _look(store, paths)):
        return []
    with database.write() as connection:
        connection.execute(_LOCK, {"order": order_id})
        valid = set(connection.scalars(_VALID_PATHS, {"order": order_id}))
        over = [found for found in _look(store, paths) if found.is_over and found.path not in valid]
        return [found for found in over if store.remove(found.path)]


def _look(store: TicketStore, paths: Iterable[str]) -> Iterator[Leftover]:
    now = time.time()
    for path in paths:
        try:
            seen = store.file(path).lstat()
        except FileNotFoundError:
            continue
        # A file that an order's next version took over keeps the time of its content; its name is younger.
        yield Leftover(path=path, size=seen.st_size, age_s=now - max(seen.st_mtime, seen.st_ctime))


_LOCK = orders.update().where(orders.c.id == sa.bindparam("order")).values(issued=orders.c.issued)
_VALID_PATHS = sa.select(tickets.c.path).where(tickets.c.order_id == sa.bindparam("order"), tickets.c.state == "valid")
