"""ReportLab with safe settings, whatever else is on this machine.

ReportLab runs code that it finds: a module `reportlab_settings` or
`reportlab_mods` anywhere on the path, a file in the home directory. And it lets
environment variables change what it draws. Import this module before any of
ReportLab's: it takes the places of those modules and sets what must not vary.
"""

import sys
import types
from collections.abc import Mapping
from typing import Any

SAFE: Mapping[str, Any] = {
    "trustedHosts": None,  # nothing is ever loaded from a network
    "trustedSchemes": [],
    "toColorCanUse": None,  # colours are never evaluated
    "invariant": 1,
    "pageCompression": 1,
    "useA85": 0,  # binary streams are a quarter smaller
    "shapeChecking": 1,
    "emptyTableAction": "error",
    "TTFSearchPath": [],  # a font is never found by its name on this machine
    "T1SearchPath": [],
    "CMapSearchPath": [],
    "pdfComments": 0,
}


def _take_places() -> None:
    """Make ReportLab's search for settings find these, if it has not been imported yet."""
    if "reportlab" in sys.modules:
        return
    settings = types.ModuleType("reportlab_settings", "Settings of Stagedoor for ReportLab.")
    sys.modules.setdefault("reportlab_settings", settings)
    sys.modules.setdefault("reportlab_mods", types.ModuleType("reportlab_mods", "Nothing, on purpose."))


def _apply() -> None:
    from reportlab import rl_config  # noqa: PLC0415 - not before its places are taken

    for name, value in SAFE.items():
        setattr(rl_config, name, list(value) if isinstance(value, list) else value)


def changed_settings() -> tuple[str, ...]:
    """Return a sentence for every setting that somebody has changed since."""
    from reportlab import rl_config  # noqa: PLC0415 - as above

    return tuple(
        f"ReportLab's setting {name} is {getattr(rl_config, name)!r}, it must be {value!r}: "
        "another package in this process has changed it"
        for name, value in SAFE.items()
        if getattr(rl_config, name) != value
    )


_take_places()
_apply()
