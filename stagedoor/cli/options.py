"""Flags: one for each setting, made from the settings' own descriptions.

A flag's text goes to `Settings.load` as it is, so that a bad one is named in the
same words as a bad environment variable, and all of them at once.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from stagedoor.settings import FIELDS, PREFIX, Settings

BOOK = ("orders_url", "tickets_dir")
RELAY = ("redis_url", "namespace", "orders_url", "relay_every_ms", "stream_maxlen", "log_format")
STATUS = ("redis_url", "namespace", "orders_url")
MAX_ID = 2**63 - 1
FEW = 8
"""Up to so many settings are one list in the help."""

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Where things are": ("redis_url", "namespace", "orders_url", "tickets_dir"),
    "What it runs": ("name", "slots", "plugins", "ticket_renderer", "missing_glyphs", "relay_every_ms"),
    "What it tells": ("log_format", "metrics_port"),
    "Retries and stopping": ("max_attempts", "max_crashes", "backoff_base_s", "backoff_cap_s", "grace_s"),
    "Bounds": ("stream_maxlen", "dead_maxlen"),
}
"""How a long help is divided; settings that are in no section come last, under "Fine tuning"."""

_METAVARS = {
    "redis_url": "URL",
    "orders_url": "URL",
    "tickets_dir": "FOLDER",
    "namespace": "NAME",
    "name": "NAME",
    "plugins": "MODULES",
    "ticket_renderer": "NAME",
    "missing_glyphs": "replace|refuse",
    "metrics_port": "PORT",
    "log_format": "text|json",
}

LOG_LEVEL = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What is told on stderr; debug also tells of each start.",
)


def number_of_id(text: str) -> int:
    """Return an id, in the one spelling that it has everywhere: digits without sign, space or leading zero.

    Raises:
        click.BadParameter: it is none; says what was found.
    """
    if re.fullmatch(r"[1-9][0-9]{0,18}", text, re.ASCII) is None or int(text) > MAX_ID:
        raise click.BadParameter(f"expected a number from 1 to {MAX_ID}, found {text[:40]!a}")
    return int(text)


def flag_of(name: str) -> str:
    """Return the flag of a setting."""
    return "--" + name.replace("_", "-")


class SettingOption(click.Option):
    """The flag of one setting; shows default and environment variable, and reads neither."""

    def __init__(self, name: str) -> None:
        field = FIELDS[name]
        super().__init__(
            [flag_of(name), name], help=field.metadata["help"], metavar=_metavar(name), type=str, default=None
        )
        self._default_text = _default_text(name)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Say in the help what the default is, and where else the value may come from."""
        record = super().get_help_record(ctx)
        if record is None:
            return None
        flag, text = record
        return flag, f"{text}  [{PREFIX}{str(self.name).upper()}; default: {self._default_text}]"


def _metavar(name: str) -> str:
    if name in _METAVARS:
        return _METAVARS[name]
    for ending, metavar in (("_ms", "MS"), ("_s", "SECONDS")):
        if name.endswith(ending):
            return metavar
    return "N"


def _default_text(name: str) -> str:
    if name == "name":
        return "the host's name"
    default: Any = getattr(Settings.load(environ={}), name)
    if default is None:
        return "off"
    if isinstance(default, tuple):
        return "none"
    if isinstance(default, float):
        return f"{default:.10g}"
    return f"./{default}" if isinstance(default, Path) and not default.is_absolute() else str(default)


class SettingsCommand(click.Command):
    """A command that reads settings: it gets them, loaded and checked, as its argument ``settings``.

    Args:
        setting_names: whose flags it has; all of them when none is named.
    """

    def __init__(
        self,
        name: str | None,
        *,
        setting_names: Sequence[str] = (),
        params: list[click.Parameter] | None = None,
        **kwargs: Any,
    ) -> None:
        self._setting_names = tuple(setting_names) or tuple(FIELDS)
        super().__init__(name, params=[*(params or []), *map(SettingOption, self._setting_names)], **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Load the settings from the environment and the flags, then run."""
        flags = {name: ctx.params.pop(name) for name in self._setting_names}
        ctx.params["settings"] = Settings.load(flags={name: text for name, text in flags.items() if text is not None})
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, then the settings, many of them by section."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        settings = {str(param.name): param for param in options if isinstance(param, SettingOption)}
        _write(formatter, ctx, "Options", [param for param in options if not isinstance(param, SettingOption)])
        if len(settings) <= FEW:
            _write(formatter, ctx, "Settings", settings.values())
            return
        for title, names in SECTIONS.items():
            _write(formatter, ctx, title, [settings.pop(name) for name in names if name in settings])
        _write(formatter, ctx, "Fine tuning", settings.values())


def _write(formatter: click.HelpFormatter, ctx: click.Context, title: str, options: Iterable[click.Option]) -> None:
    records = [record for option in options if (record := option.get_help_record(ctx)) is not None]
    if records:
        with formatter.section(title):
            formatter.write_dl(records)
