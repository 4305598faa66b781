"""Whose order book a namespace serves.

Its entries name orders by numbers, which mean something in one book only: a worker
with another book would find another order under the number, or none, and settle the
job all the same.
"""

from typing import cast

from stagedoor.broker.connection import Link, mapped_errors
from stagedoor.core.keys import Keys
from stagedoor.errors import ConfigurationError


class ServesAnotherBook(ConfigurationError):
    """The namespace serves another order book than this process has."""

    def __init__(self, *, namespace: str, served: str, ours: str) -> None:
        super().__init__(
            f"namespace: {namespace!r} serves another order book than this one (its id begins with {served[:8]},"
            f" this one's with {ours[:8]}): set STAGEDOOR_ORDERS_URL to that book or STAGEDOOR_NAMESPACE to one of"
            " this book's own, or let it serve this book:"
            f" python -m stagedoor relay --namespace {namespace} --move-book"
        )


class Binding:
    """The order book of one process, and the namespace that it works in.

    Every method may raise `BrokerUnavailable`.

    Args:
        link: the connections to Redis.
        keys: of the namespace.
        book_id: the order book's random id.
    """

    def __init__(self, link: Link, keys: Keys, book_id: str) -> None:
        self._link = link
        self._keys = keys
        self._book_id = book_id

    def bind(self) -> None:
        """Let the namespace serve this order book, unless it serves one already.

        Raises:
            ServesAnotherBook: it serves another one; work on nothing of it.

        **Durability**: on Redis when it returns, and gone with all that Redis forgets. Safe to repeat.
        """
        with mapped_errors():
            # Looked at first: it is written once, and looked at all the time.
            found = self._link.quick.get(self._keys.book)
            if found is None:
                self._link.quick.set(self._keys.book, self._book_id, nx=True)
                found = self._link.quick.get(self._keys.book)
        served = cast("bytes", found or b"").decode("utf-8", "replace")
        if served != self._book_id:
            raise ServesAnotherBook(namespace=self._keys.namespace, served=served, ours=self._book_id)

    def move(self) -> bool:
        """Let the namespace serve this order book from now on; return whether it served another one before.

        **Durability**: as `bind`. Workers of the other book see it at their next beat, and stop.
        """
        with mapped_errors():
            before = cast("bytes | None", self._link.quick.set(self._keys.book, self._book_id, get=True))
        return before not in {None, self._book_id.encode()}
