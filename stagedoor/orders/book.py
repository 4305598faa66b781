"""The order book: what a shop does to orders, and what handlers do to tickets.

Every method is one short transaction (`place_many`: one per batch), may be
called by many threads and processes at once, and raises `OrderBookUnavailable`
while the database cannot serve it. What a shop does raises the order's version
and writes the outbox row in that same transaction: either both are there or
neither.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import batched
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import attrs
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from stagedoor.errors import InvalidOrder, OrderNotFound, OrderStateError
from stagedoor.order import NewOrder, Order, Position
from stagedoor.orders import check, tickets
from stagedoor.orders.changes import Change, apply_changes
from stagedoor.orders.check import InvariantReport
from stagedoor.orders.engine import Database, create_schema, open_engine
from stagedoor.orders.outbox import Outbox, make_row
from stagedoor.orders.parse import MAX_ID, accept
from stagedoor.orders.rows import new_token, order_row, placed, position_row, select_order, to_orders
from stagedoor.orders.schema import orders as orders_table
from stagedoor.orders.schema import outbox as outbox_table
from stagedoor.orders.schema import positions as positions_table
from stagedoor.orders.schema import tickets as tickets_table
from stagedoor.orders.store import TicketStore
from stagedoor.orders.sweep import Leftover, leftovers_of, sweep
from stagedoor.orders.tickets import IssueState, NewTicket, Ticket, TokenState

__all__ = ["OrderBook", "Summary"]

RENDER = "render_tickets"
REFUND = "refund_order"
# One transaction of a batch: long enough to share its fsync, short enough that others get their turn.
_BATCH = 500
_ID_ATTEMPTS = 3


@attrs.frozen(kw_only=True)
class Summary:
    """How many there are of what."""

    orders_placed: int
    orders_refunded: int
    tickets_valid: int
    tickets_void: int


@attrs.frozen(kw_only=True)
class _Origin:
    """Where a change came from, for the outbox row."""

    request_id: str
    trace: str
    now: float

    def row(self, kind: str, order_id: int) -> dict[str, Any]:
        return make_row(kind, order_id, request_id=self.request_id, trace=self.trace, now=self.now)


class OrderBook:
    """One order book with its ticket files and its outbox; open it with `open`.

    Attributes:
        store: the ticket files.
        outbox: what the relay needs.
    """

    def __init__(
        self,
        database: Database,
        *,
        book_id: str,
        store: TicketStore,
        clock: Callable[[], float],
        issued_by: str = RENDER,
    ) -> None:
        self._database = database
        self._clock = clock
        self._issued_by = issued_by
        self.store = store
        self.outbox = Outbox(database, book_id=book_id, clock=clock)

    @classmethod
    def open(
        cls,
        url: str,
        *,
        tickets_dir: Path,
        clock: Callable[[], float] = time.time,
        busy_timeout_s: float = 30.0,
        issued_by: str = RENDER,
    ) -> Self:
        """Open an order book, and make its tables and its folder if they are not there.

        Several processes may do so at the same moment.

        Args:
            url: ``sqlite:///path/to/file.db`` or ``postgresql://user@host/name``.
            tickets_dir: the folder for ticket files; all hosts of one book share it.
            clock: gives the time in seconds since the epoch.
            busy_timeout_s: how long a SQLite writer waits for another one, in seconds.
            issued_by: the kind of the outbox rows that have tickets made: a handler's, or the name
                of a flow such as ``fulfil-order``.

        Raises:
            ConfigurationError: the address, its driver, the database or the folder will not do.
        """
        database = Database(open_engine(url, busy_timeout_s=busy_timeout_s))
        try:
            book_id = create_schema(database)
            store = TicketStore(tickets_dir, book_id=book_id)
        except BaseException:
            database.close()
            raise
        return cls(database, book_id=book_id, store=store, clock=clock, issued_by=issued_by)

    def close(self) -> None:
        """Close the connections to the database; one that a call still has out, when that call is over."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # -- the shop -------------------------------------------------------------

    def place(self, order_data: Mapping[str, Any] | NewOrder, *, request_id: str = "", trace: str = "") -> Order:
        """Place an order, and return it with its id and the tokens of its positions.

        Args:
            order_data: the order; its id may be left out.
            request_id: joins the log lines of the job to the request; up to 128 characters.
            trace: as *request_id*, for the trace.

        Raises:
            InvalidOrder: names each field that will not do.
            OrderStateError: there is an order with this id already.

        **Durability**: order, positions and outbox row are on disk together, or none of them.
        """
        return self._place([accept(order_data)], self._origin(request_id, trace))[0]

    def place_many(
        self, order_data: Iterable[Mapping[str, Any] | NewOrder], *, request_id: str = "", trace: str = ""
    ) -> list[int]:
        """Place many orders, and return their ids in the same sequence.

        Raises:
            InvalidOrder: names the order by its place, and each field that will not do.
            OrderStateError: there is an order with one of the ids already.

        **Durability**: 500 orders to a transaction; when a batch is refused, those before it stay.
        """
        origin = self._origin(request_id, trace)
        ids: list[int] = []
        for batch in batched(_accepted(order_data), _BATCH, strict=False):
            ids += [order.order_id for order in self._place(batch, origin)]
        return ids

    def refund(self, order_id: int, *, request_id: str = "", trace: str = "") -> Order:
        """Refund a whole order, and return it as it is then; the door refuses its tickets at once.

        Raises:
            OrderNotFound: there is no such order.
            OrderStateError: it is refunded already.

        **Durability**: the new state and the outbox row are on disk together, or neither.
        """
        origin = self._origin(request_id, trace)
        with self._database.write() as connection:
            _raise_version(connection, order_id, status="refunded", refunded_at=origin.now, changed_at=origin.now)
            connection.execute(outbox_table.insert(), origin.row(REFUND, order_id))
            return _read_order(connection, order_id)

    def change(self, order_id: int, *changes: Change, request_id: str = "", trace: str = "") -> Order:
        """Make changes to positions of a placed order, and return it as it is then.

        All its tickets are issued anew, for the new version; only those that show
        something of the changed positions are drawn again.

        Args:
            order_id: the order.
            changes: `Rename`, `Reseat`, `RotateToken` or `RefundPosition`; all of them or none.
            request_id: as in `place`.
            trace: as in `place`.

        Raises:
            ValueError: there are no changes; `reissue` makes tickets again without one.
            OrderNotFound: there is no such order.
            OrderStateError: the order or a position is refunded, or the position is not there.
            InvalidOrder: a holder or a seat will not do.

        **Durability**: the new version and the outbox row are on disk together, or neither.
        """
        if not changes:
            raise ValueError("change: expected at least one change; use reissue to make the tickets again")
        origin = self._origin(request_id, trace)
        with self._database.write() as connection:
            _raise_version(connection, order_id, changed_at=origin.now)
            before = _read_order(connection, order_id)
            after = apply_changes(before, changes, new_token=new_token)
            for place, position in enumerate(after.positions):
                if position != before.positions[place]:
                    _write_position(connection, order_id, place, position)
            connection.execute(outbox_table.insert(), origin.row(self._issued_by, order_id))
        return after

    def reissue(self, order_id: int, *, request_id: str = "", trace: str = "") -> Order:
        """Raise the version so that all tickets of the order are drawn again; their tokens stay.

        All placed positions take that version: nothing of an earlier one is carried over.

        Raises:
            OrderNotFound: there is no such order.
            OrderStateError: it is refunded.

        **Durability**: the new version and the outbox row are on disk together, or neither.
        """
        origin = self._origin(request_id, trace)
        with self._database.write() as connection:
            _raise_version(connection, order_id, changed_at=origin.now)
            connection.execute(_RENEW_POSITIONS, {"order": order_id})
            connection.execute(outbox_table.insert(), origin.row(self._issued_by, order_id))
            return _read_order(connection, order_id)

    def get(self, order_id: int) -> Order:
        """Return the order as it is now, all of it from one moment.

        Raises:
            OrderNotFound: there is no such order.
        """
        with self._database.read() as connection:
            return _read_order(connection, order_id)

    def valid_tickets(self, order_id: int) -> tuple[Ticket, ...]:
        """Return the valid tickets of an order, oldest first."""
        with self._database.read() as connection:
            return tickets.read_valid(connection, order_id)

    def tickets(self, order_id: int) -> tuple[Ticket, ...]:
        """Return all tickets of an order, void ones too, oldest first."""
        with self._database.read() as connection:
            return tickets.read_tickets(connection, order_id)

    def check_token(self, token: str) -> TokenState:
        """Return what the door is to do with a token; case and surrounding space do not matter."""
        cleaned = token.strip().upper()
        if not cleaned.isalnum() or not cleaned.isascii():
            return tickets.judge_token(None, cleaned)
        with self._database.read() as connection:
            return tickets.judge_token(tickets.find_token(connection, cleaned), cleaned)

    # -- the handlers ---------------------------------------------------------

    def issue_state(self, order: Order) -> IssueState:
        """Return whether tickets for this version of the order are there.

        Returns:
            ``issued``: each placed position has its valid ticket, the files are there;
            ``damaged``: they were issued, but a file or a row is missing;
            ``due``: not issued, or not for this version, or the order is no longer like this.
        """
        with self._database.read() as connection:
            issued = tickets.read_issued(connection, order)
        if issued is None:
            return "due"
        is_whole = issued.keys() == {position.id for position in order.placed_positions}
        return "issued" if is_whole and all(map(self.store.is_present, issued.values())) else "damaged"

    def is_issued(self, order: Order) -> bool:
        """Return whether tickets for this version were issued and their files are there."""
        return self.issue_state(order) == "issued"

    def commit_tickets(self, order: Order, files: Sequence[NewTicket], *, replace: bool = False) -> bool:
        """Issue tickets for exactly this version of the order, and void those of earlier ones.

        The transaction's first statement is an UPDATE of the order's row that
        carries the whole condition: placed, this version, not issued for it yet.

        Args:
            order: the order as it was read before rendering.
            files: one for each placed position, written and durable.
            replace: let tickets of this very version be replaced whose files were lost.

        Returns:
            False: the order has changed, was refunded, or its tickets were issued already;
            nothing was written.

        Raises:
            ValueError: *files* are not one for each placed position.
            TicketFileMissing: a file is not there; nothing was committed.

        **Durability**: all tickets of the version or none. Safe to repeat: the second call returns False.
        """
        with self._database.write() as connection:
            if not tickets.claim_issue(connection, order, replace=replace):
                return False
            tickets.issue(connection, order, files, store=self.store, now=self._clock())
        return True

    def void_refunded(self, order_id: int) -> tuple[Ticket, ...]:
        """Void the tickets of an order that is refunded, and return those that became void.

        The transaction's first statement is an UPDATE of the order's row that
        requires the refunded status: of an order that is not, nothing becomes void.

        **Durability**: all of them or none. Safe to repeat: the second call returns nothing.
        """
        now = self._clock()
        with self._database.write() as connection:
            if not tickets.claim_void(connection, order_id):
                return ()
            valid = tickets.read_valid(connection, order_id)
            tickets.void(connection, [(ticket.ticket_id, "order refunded") for ticket in valid], now=now)
        return tuple(attrs.evolve(t, state="void", voided_at=now, void_reason="order refunded") for t in valid)

    # -- looking --------------------------------------------------------------

    def check_invariant(self, order_ids: Iterable[int] | None = None) -> InvariantReport:
        """Check orders against what must hold once nothing is waiting for them any more.

        Args:
            order_ids: which ones; None takes all, and also looks for files that no valid ticket uses.
        """
        return check.check_invariant(self._database, self.store, order_ids)

    def leftovers(self, report: InvariantReport) -> tuple[Leftover, ...]:
        """Return the files that no ticket needs: those that *report* calls stray, and unfinished ones."""
        return leftovers_of(self.store, report.stray)

    def sweep(self, paths: Iterable[str]) -> tuple[Leftover, ...]:
        """Remove those of the files that no valid ticket uses and that are an hour old, and return them.

        A render that is under way loses nothing by it: see `stagedoor.orders.sweep`.

        **Durability**: a removed file may be back after a power failure. Safe to repeat.
        """
        return sweep(self._database, self.store, paths)

    def summary(self) -> Summary:
        """Return how many orders are placed and refunded, and how many tickets are valid and void."""
        statuses = sa.select(orders_table.c.status, sa.func.count()).group_by(orders_table.c.status)
        states = sa.select(tickets_table.c.state, sa.func.count()).group_by(tickets_table.c.state)
        with self._database.read() as connection:
            counts = {name: count for query in (statuses, states) for name, count in connection.execute(query)}
        return Summary(
            orders_placed=counts.get("placed", 0),
            orders_refunded=counts.get("refunded", 0),
            tickets_valid=counts.get("valid", 0),
            tickets_void=counts.get("void", 0),
        )

    # -- inside ---------------------------------------------------------------

    def _origin(self, request_id: str, trace: str) -> _Origin:
        origin = _Origin(request_id=request_id, trace=trace, now=self._clock())
        origin.row(self._issued_by, 1)  # refuses bad texts before anything is begun
        return origin

    def _place(self, batch: Sequence[NewOrder], origin: _Origin) -> list[Order]:
        given = [new.order_id for new in batch if new.order_id is not None]
        for attempt in range(1, _ID_ATTEMPTS + 1):
            try:
                with self._database.write() as connection:
                    return _insert(connection, batch, origin, issued_by=self._issued_by)
            except IntegrityError:
                self._refuse_taken(given)
                if attempt == _ID_ATTEMPTS or self._database.is_sqlite or len(given) == len(batch):
                    raise
                self._skip_ids(max(given, default=0))
        raise AssertionError("the last attempt returns or raises")

    def _refuse_taken(self, given: Sequence[int]) -> None:
        twice = sorted({order_id for order_id in given if given.count(order_id) > 1}) if given else []
        with self._database.read() as connection:
            taken = connection.scalars(sa.select(orders_table.c.id).where(orders_table.c.id.in_(given))).all()
        if twice or taken:
            shown = ", ".join(map(str, (twice or sorted(taken))[:5]))
            raise OrderStateError(
                f"order_id: {shown} {'is given more than once' if twice else 'is taken by an order already'};"
                " nothing of this batch was placed"
            )

    def _skip_ids(self, given: int) -> None:
        """Let PostgreSQL's counter pass the ids that shops chose, which it does not count by itself."""
        highest = sa.select(sa.func.greatest(sa.func.max(orders_table.c.id), given)).scalar_subquery()
        sequence = sa.func.pg_get_serial_sequence(orders_table.name, "id")
        with self._database.write() as connection:
            connection.execute(sa.select(sa.func.setval(sequence, highest)))


# -- statements ---------------------------------------------------------------


def _accepted(order_data: Iterable[Mapping[str, Any] | NewOrder]) -> Iterator[NewOrder]:
    for count, data in enumerate(order_data, start=1):
        try:
            yield accept(data)
        except InvalidOrder as error:
            raise InvalidOrder(f"order {count} of the sequence: {error}") from None


def _insert(connection: Connection, batch: Sequence[NewOrder], origin: _Origin, *, issued_by: str) -> list[Order]:
    """Insert orders, positions and outbox rows of a batch; the first statement writes."""
    ids = _insert_orders(connection, batch, origin.now)
    result = [placed(new, order_id) for new, order_id in zip(batch, ids, strict=True)]
    connection.execute(
        positions_table.insert(),
        [position_row(order.order_id, place, each) for order in result for place, each in enumerate(order.positions)],
    )
    connection.execute(outbox_table.insert(), [origin.row(issued_by, order.order_id) for order in result])
    return result


def _insert_orders(connection: Connection, batch: Sequence[NewOrder], now: float) -> list[int]:
    given = [order_row(new, now) for new in batch if new.order_id is not None]
    if given:
        connection.execute(orders_table.insert(), given)
    unnumbered = [order_row(new, now) for new in batch if new.order_id is None]
    chosen: Iterator[int] = iter(())
    if unnumbered:
        insert = orders_table.insert().returning(orders_table.c.id, sort_by_parameter_order=True)
        chosen = iter(connection.scalars(insert, unnumbered).all())
    return [next(chosen) if new.order_id is None else new.order_id for new in batch]


def _raise_version(connection: Connection, order_id: int, **values: Any) -> None:
    """Raise the version of a placed order, which locks it; the first statement of its transaction."""
    _check_known(order_id)
    is_placed = (orders_table.c.id == order_id, orders_table.c.status == "placed")
    changed = connection.execute(
        orders_table.update().where(*is_placed).values(version=orders_table.c.version + 1, **values)
    )
    if changed.rowcount == 0:
        _read_order(connection, order_id)
        raise OrderStateError(f"order {order_id} is refunded already")


def _read_order(connection: Connection, order_id: int) -> Order:
    _check_known(order_id)
    found = to_orders(connection.execute(_READ_ORDER, {"order": order_id}))
    if not found:
        raise OrderNotFound(f"there is no order {order_id}")
    return found[0]


_READ_ORDER = select_order(orders_table.c.id == sa.bindparam("order"))
"""Written once: putting it together costs as much as running it."""


_RENEW_POSITIONS = (
    positions_table.update()
    .where(positions_table.c.order_id == sa.bindparam("order"), positions_table.c.status == "placed")
    .values(
        version=sa.select(orders_table.c.version).where(orders_table.c.id == sa.bindparam("order")).scalar_subquery()
    )
)


def _check_known(order_id: object) -> None:
    """Refuse what no database can look up."""
    if not isinstance(order_id, int) or not 1 <= order_id <= MAX_ID:
        raise OrderNotFound(f"there is no such order: ids are whole numbers from 1 to {MAX_ID}")


def _write_position(connection: Connection, order_id: int, place: int, position: Position) -> None:
    row = position_row(order_id, place, position)
    key = (positions_table.c.order_id == row.pop("order_id"), positions_table.c.id == row.pop("id"))
    connection.execute(positions_table.update().where(*key).values(**row))
