"""What ``verify`` shows."""

from collections.abc import Sequence

import attrs
from rich.text import Text

from stagedoor.cli.engine import needs_engine
from stagedoor.cli.failures import FAILED
from stagedoor.cli.output import facts, print_json, safe, show

with needs_engine("verify"):
    from stagedoor_renderers import signing


def verify(token: str, keys: Sequence[str], *, as_json: bool) -> int:
    """Print what *token* says, or why it says nothing, and return the exit code.

    Raises:
        ConfigurationError: a key cannot be used.
    """
    known = signing.load_public_keys(keys)
    try:
        found = signing.verify(token, known)
    except signing.InvalidToken as error:
        if as_json:
            print_json({"genuine": False, "reason": str(error)})
        else:
            show(Text("not genuine: ", style="bold red") + safe(str(error)))
        return FAILED
    if as_json:
        print_json({"genuine": True, **attrs.asdict(found)})
    else:
        rows = (("order", found.order_id), ("position", found.position_id), ("token", found.token), ("key", found.key))
        show(Text("genuine", style="bold green"), facts(rows))
    return 0
