"""One worker's verbs are called from many threads at once: reader, settler, heartbeat and all the others."""

import queue
import threading
from collections.abc import Callable

from stagedoor.broker.deliveries import Deliveries, Pulse, Renewal
from stagedoor.core.entry import Claimed
from stagedoor.core.outcome import RetryLater
from stagedoor.core.tenure import Stream
from tests.broker.harness import Harness, accepted, job, settled

JOBS = 200


def test_a_worker_reads_settles_and_renews_at_once_and_nothing_is_lost_or_done_twice(broker: Harness) -> None:
    worker = broker.worker("w")
    for number in range(JOBS):
        broker.add(job(outbox_id=str(number + 1)), list(Stream)[number % 2])
    to_settle: queue.Queue[Claimed | None] = queue.Queue()
    done: list[bytes] = []
    problems: list[object] = []
    is_over = threading.Event()

    def read() -> None:
        while len(done) < JOBS:
            claimed = worker.read(7).claimed
            renewals = worker.renew([one.tenure for one in claimed])
            if set(renewals) - {Renewal.RENEWED}:
                problems.append(renewals)
            for one in claimed:
                to_settle.put(one)
        to_settle.put(None)

    def settle() -> None:
        batch = 0
        while (one := to_settle.get()) is not None:
            batch += 1
            fields = dict(one.entry.fields)
            is_first = b"attempt" not in fields and int(fields[b"outbox_id"]) % 3 == 0
            answers = worker.settle(batch, [settled(one, RetryLater(0, 2, "x") if is_first else None)])
            if answers.answers != accepted(1):
                problems.append(answers)
            if not is_first:
                done.append(fields[b"outbox_id"])

    def keep_up(act: Callable[[Deliveries], object]) -> Callable[[], None]:
        def run() -> None:
            while not is_over.is_set():
                act(worker)

        return run

    others = [
        keep_up(lambda w: w.beat(Pulse(slots=8))),
        keep_up(lambda w: w.promote()),
        keep_up(lambda w: (w.sweep(), w.reclaim())),
    ]
    threads = [threading.Thread(target=run) for run in (read, settle, *others)]
    for thread in threads:
        thread.start()
    for thread in threads[:2]:
        thread.join(60)
    is_over.set()
    for thread in threads[2:]:
        thread.join(60)

    assert problems == []
    assert sorted(done) == sorted(b"%d" % (number + 1) for number in range(JOBS))
    state = broker.state()
    assert (broker.length(), state.jobs.pending, state.delayed, state.dead) == (0, {}, {}, ())
