"""The calls of flows of a rehearsal: whether all have ended, and whether each has ended as it should."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import attrs

from stagedoor.broker.calls import Calls
from stagedoor.core.call import CallState
from stagedoor.core.journal import Journal
from stagedoor.rehearsal.check import Checked
from stagedoor.rehearsal.watch import FULFIL

type Judge = Callable[[Journal], str | None]
"""Says what is wrong with a call that has ended, None for nothing."""

ENDINGS = frozenset(('"issued"', '"present"', '"refunded"', '"outdated"'))
"""What `fulfil-order` may return."""


@attrs.frozen(kw_only=True)
class CallsChecked:
    """What a look at all calls found at rest; *problems* are in words, one for each call that is not right."""

    done: int
    cancelled: int
    parked: int
    steps: int
    passes: int
    by_flow: Mapping[str, int]
    problems: tuple[str, ...]


def are_over(counts: Mapping[CallState, int]) -> bool:
    """Return whether no call goes on by itself: each has ended or is parked."""
    return all(state.has_ended or state is CallState.PARKED for state, count in counts.items() if count)


def judge_fulfilled(journal: Journal) -> str | None:
    """Say what is wrong with a call of `fulfil-order` that has ended."""
    result = None if journal.outcome is None else journal.outcome.result
    return _not_done(journal) or (None if result in ENDINGS else f"its result is {result}")


def check_calls(
    calls: Calls, *, expected: Mapping[str, int], judges: Mapping[str, Judge] | None = None
) -> CallsChecked:
    """Look at each call: it must have ended, as its flow's judge wants it; done, where there is none.

    Args:
        calls: at rest.
        expected: how many calls of each flow there must be.
        judges: by flow, besides that of `fulfil-order`.
    """
    judges = {FULFIL: judge_fulfilled, **(judges or {})}
    found = dict.fromkeys(expected, 0)
    states: Counter[CallState] = Counter()
    steps = passes = 0
    problems: list[str] = []
    for journal in every_call(calls):
        found[journal.flow] = found.get(journal.flow, 0) + 1
        states[journal.state] += 1
        steps += len(journal.steps)
        passes += journal.epoch
        problem = _problem_of(journal, judges)
        if problem is not None:
            problems.append(f"wrong: call {journal.call_id} of {journal.flow}: {problem}")
    for flow, count in expected.items():
        if found[flow] != count:
            problems.append(f"wrong: {count} calls of {flow} must be there, and {found[flow]} are")
    return CallsChecked(
        done=states[CallState.DONE],
        cancelled=states[CallState.CANCELLED],
        parked=states[CallState.PARKED],
        steps=steps,
        passes=passes,
        by_flow=found,
        problems=tuple(problems),
    )


def every_call(calls: Calls) -> Iterator[Journal]:
    """Yield all calls that there are; they must be at rest."""
    after, is_first = "", True
    while after or is_first:
        is_first = False
        page = calls.list_calls(after=after, limit=500)
        for line in page.calls:
            journal = calls.show(line.call_id)
            if journal is not None:
                yield journal
        after = page.after


def with_calls(checked: Checked, found: CallsChecked) -> Checked:
    """Return what was found, with each call that is not as it should be counted as wrong."""
    return attrs.evolve(
        checked, wrong=checked.wrong + len(found.problems), problems=(*checked.problems, *found.problems)
    )


def _problem_of(journal: Journal, judges: Mapping[str, Judge]) -> str | None:
    judge = judges.get(journal.flow, _not_done)
    return judge(journal) if journal.state.has_ended else _not_done(journal)


def _not_done(journal: Journal) -> str | None:
    if journal.state is CallState.DONE:
        return None
    said = journal.outcome.error if journal.outcome is not None else journal.parked_error or journal.waiting_for
    return f"it is {journal.state.value}: {said}"
