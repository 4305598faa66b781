"""What a group of exceptions says: nurseries wrap even a single error in one."""

from collections.abc import Iterator

from stagedoor.errors import LeaseLost, Permanent, Retry, Unavailable

_DECISIVE = (LeaseLost, Permanent)


def essence(error: BaseException) -> BaseException:
    """Return the exception that decides what becomes of a delivery.

    A handler that opens a nursery raises groups, also for what it says with `Retry`
    and `Permanent`. A group of one stands for the one; in a group of several what
    forbids another attempt wins, and all of them asking for another attempt is one.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    all_of_them = list(leaves(error))
    for kind in _DECISIVE:
        for leaf in all_of_them:
            if isinstance(leaf, kind):
                return leaf
    if len(all_of_them) == 1 or all(isinstance(leaf, Retry | Unavailable) for leaf in all_of_them):
        return all_of_them[0]
    return error


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Give every exception that is no group, in order; however deep, without recursion."""
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if isinstance(one, BaseExceptionGroup):
            waiting.extend(reversed(one.exceptions))
        else:
            yield one
