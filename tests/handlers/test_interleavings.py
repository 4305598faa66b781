"""Every interleaving of shop and handlers on the real order book, one order at a time.

Actors are the real handlers and the real shop, stopped before each transaction
and each change of the file system. After each schedule the jobs that are owed
and were not part of it are handled; then nothing is waiting, and the invariant
must hold: rows, files, their content, and no file left over. Then, after some
schedules, every job is delivered once more, and nothing may change.
"""

from collections.abc import Callable

import attrs
import pytest

from stagedoor.orders import OrderBook, RefundPosition, Rename, RotateToken
from stagedoor.orders.schema import orders
from tests.handlers.support import Actor, Pause, Script, broken, crashing, delivery, run, schedules
from tests.orders.support import order_data

RENDER = "render_tickets"
REFUND = "refund_order"


@attrs.frozen
class Scene:
    """Makes the actors of a scenario for one fresh order, and says what is owed when they are done."""

    prepare: Callable[[OrderBook, int], None]
    actors: Callable[[OrderBook, int], list[Script]]
    owed: tuple[str, ...] = ()
    positions: int = 1


def shop(*actions: Callable[[], object], then: Script | None = None) -> Script:
    """Return the script of a shop that does one thing after the other, and of the worker that handles the last."""

    def script(pause: Pause) -> None:
        for action in actions:
            pause("act")
            action()
        if then:
            then(pause)

    return script


def nothing(book: OrderBook, order_id: int) -> None:
    """Leave the order as it was placed."""


def issued(book: OrderBook, order_id: int) -> None:
    run(book, RENDER, order_id)


def issued_and_damaged(book: OrderBook, order_id: int) -> None:
    run(book, RENDER, order_id)
    book.store.remove(book.tickets(order_id)[0].path)


def refunded(book: OrderBook, order_id: int) -> None:
    book.refund(order_id)


def issued_and_refunded(book: OrderBook, order_id: int) -> None:
    run(book, RENDER, order_id)
    book.refund(order_id)


def issued_and_changed(book: OrderBook, order_id: int) -> None:
    run(book, RENDER, order_id)
    book.change(order_id, Rename(1, "Changed"))


def issued_and_raised(book: OrderBook, order_id: int) -> None:
    """Leave the order at a version that its ticket shows nothing of."""
    run(book, RENDER, order_id)
    raising(book, order_id)()


def raising(book: OrderBook, order_id: int) -> Callable[[], object]:
    """Return what a shop does that changes nothing which a ticket shows."""
    raised = orders.update().where(orders.c.id == order_id).values(version=orders.c.version + 1)

    def act() -> None:
        with book._database.write() as connection:
            connection.execute(raised)

    return act


def placed_still(book: OrderBook, order_id: int) -> bool:
    return book.get(order_id).status == "placed"


def rename(book: OrderBook, order_id: int) -> Callable[[], object]:
    return lambda: book.change(order_id, Rename(1, "Ada"))


SCENES = {
    "a job delivered twice at once": Scene(
        nothing, lambda book, order: [delivery(book, RENDER, order), delivery(book, RENDER, order)]
    ),
    "a new version delivered twice at once": Scene(
        issued_and_changed, lambda book, order: [delivery(book, RENDER, order), delivery(book, RENDER, order)]
    ),
    "refunded around the render": Scene(
        nothing,
        lambda book, order: [
            delivery(book, RENDER, order),
            shop(lambda: book.refund(order), then=delivery(book, REFUND, order)),
        ],
    ),
    "changed around the render": Scene(
        nothing,
        lambda book, order: [
            delivery(book, RENDER, order),
            shop(rename(book, order), then=delivery(book, RENDER, order)),
        ],
    ),
    "changed, then refunded, around the render of a new version": Scene(
        issued,
        lambda book, order: [
            delivery(book, RENDER, order),
            shop(
                lambda: book.change(order, RotateToken(1)),
                lambda: book.refund(order),
            ),
        ],
        owed=(RENDER, REFUND),
    ),
    "refunded before the render": Scene(
        refunded, lambda book, order: [delivery(book, RENDER, order), delivery(book, REFUND, order)]
    ),
    "a refund delivered twice at once": Scene(
        issued_and_refunded, lambda book, order: [delivery(book, REFUND, order), delivery(book, REFUND, order)]
    ),
    "both jobs of a refunded order, again": Scene(
        issued_and_refunded, lambda book, order: [delivery(book, RENDER, order), delivery(book, REFUND, order)]
    ),
    **{
        f"a crash after {steps} steps of the render, refunded around it": Scene(
            nothing,
            lambda book, order, steps=steps: [  # type: ignore[misc]  # binds the loop's value
                crashing(delivery(book, RENDER, order), after=steps),
                shop(lambda: book.refund(order)),
            ],
            owed=(REFUND,),
        )
        for steps in range(6)
    },
    **{
        f"a crash after {steps} steps of a new version, changed around it": Scene(
            issued_and_changed,
            lambda book, order, steps=steps: [  # type: ignore[misc]  # binds the loop's value
                crashing(delivery(book, RENDER, order), after=steps),
                shop(lambda: book.change(order, Rename(1, "Ada"))),
            ],
            owed=(RENDER,),
        )
        for steps in range(6)
    },
    **{
        f"a crash after {steps} steps of a refund, the render beside it": Scene(
            issued_and_refunded,
            lambda book, order, steps=steps: [  # type: ignore[misc]  # binds the loop's value
                crashing(delivery(book, REFUND, order), after=steps),
                delivery(book, RENDER, order),
            ],
        )
        for steps in range(4)
    },
    "one position refunded around the render": Scene(
        nothing,
        lambda book, order: [
            delivery(book, RENDER, order),
            shop(lambda: book.change(order, RefundPosition(2))),
        ],
        owed=(RENDER,),
        positions=2,
    ),
    "a ticket carried over by two at once": Scene(
        issued_and_raised, lambda book, order: [delivery(book, RENDER, order), delivery(book, RENDER, order)]
    ),
    "a ticket carried over while its position changes": Scene(
        issued_and_raised,
        lambda book, order: [delivery(book, RENDER, order), shop(rename(book, order))],
        owed=(RENDER,),
    ),
    "a ticket carried over around a refund": Scene(
        issued_and_raised,
        lambda book, order: [
            delivery(book, RENDER, order),
            shop(lambda: book.refund(order)),
        ],
        owed=(RENDER, REFUND),
    ),
    **{
        f"a crash after {steps} steps of carrying over, changed around it": Scene(
            issued_and_raised,
            lambda book, order, steps=steps: [  # type: ignore[misc]  # binds the loop's value
                crashing(delivery(book, RENDER, order), after=steps),
                shop(raising(book, order)),
            ],
            owed=(RENDER,),
        )
        for steps in range(2, 6)
    },
    "a lost file made again by two at once": Scene(
        issued_and_damaged, lambda book, order: [delivery(book, RENDER, order), delivery(book, RENDER, order)]
    ),
    "a lost file made again around a refund": Scene(
        issued_and_damaged,
        lambda book, order: [
            delivery(book, RENDER, order),
            shop(lambda: book.refund(order), then=delivery(book, REFUND, order)),
        ],
    ),
    "three at once: render, change, refund": Scene(
        nothing,
        lambda book, order: [
            delivery(book, RENDER, order),
            shop(lambda: placed_still(book, order) and book.reissue(order)),
            shop(lambda: book.refund(order)),
        ],
        owed=(RENDER, REFUND),
    ),
}


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_the_invariant_holds_after_every_interleaving(scene: Scene, book: OrderBook) -> None:
    assert explore(scene, book) > 1


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    "name",
    [
        "a job delivered twice at once",
        "refunded around the render",
    ],
)
def test_the_invariant_holds_on_postgresql_too(name: str, book: OrderBook) -> None:
    assert explore(SCENES[name], book) > 1


def explore(scene: Scene, book: OrderBook) -> int:
    """Run every schedule of a scene, and return how many there were."""
    placed: list[int] = []

    def start() -> list[Actor]:
        order_id = book.place(order_data(positions=scene.positions)).order_id
        placed.append(order_id)
        scene.prepare(book, order_id)
        return [Actor(script) for script in scene.actors(book, order_id)]

    def finish(taken: list[str]) -> None:
        order_id = placed[-1]
        for kind in scene.owed:
            run(book, kind, order_id)
        assert broken(book, order_id) == [], f"after the schedule {taken}"
        if len(placed) % 4:
            return  # once in four schedules is enough of what follows
        before = book.tickets(order_id)
        for kind in (RENDER, REFUND):
            run(book, kind, order_id)
        assert broken(book, order_id) == [], f"after the schedule {taken} and duplicates"
        assert book.tickets(order_id) == before, f"duplicates changed tickets after the schedule {taken}"

    return schedules(start, finish)
