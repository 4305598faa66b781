"""A line of the log before it is text."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Line:
    """One thing to tell, before it is text; *at* is Unix seconds."""

    at: float
    level: str
    name: str
    fields: Mapping[str, Any]


type LineMaker = Callable[[Line], str]
