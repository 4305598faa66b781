"""Every setting: its default, its unit, what is allowed; read once, checked all at once, then frozen.

Each has an environment variable ``STAGEDOOR_<NAME>`` and a flag ``--<name>`` with
dashes; the flag wins. `FIELDS` is what the command line builds its flags from.
"""

import os
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from stagedoor.errors import ConfigurationError

PREFIX = "STAGEDOOR_"
NOT_OURS = frozenset({"STAGEDOOR_PYTHON"})
"""Variables with our prefix that belong to the set-up of the checkout."""

NAMESPACE_PATTERN = r"[A-Za-z0-9._-]{1,32}|\{[A-Za-z0-9._-]{1,32}\}"
NAME_PATTERN = r"[A-Za-z0-9._-]{1,64}"


def _number[N: (int, float)](convert: Callable[[str], N], unit: str, least: float, most: float) -> Callable[[str], N]:
    allowed = f"a number of {unit} from {least:g} to {most:g}"

    def parse(text: str) -> N:
        try:
            value = convert(text.strip())
        except ValueError:
            raise ValueError(allowed) from None
        if not least <= value <= most:
            raise ValueError(allowed)
        return value

    return parse


def _matching(pattern: str, allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if re.fullmatch(pattern, text, re.ASCII) is None:
            raise ValueError(allowed)
        return text

    return parse


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError("one of " + ", ".join(choices))
        return text

    return parse


def _modules(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not all(re.fullmatch(r"[A-Za-z_][\w.]*", name) for name in names):
        raise ValueError("module names separated by commas")
    return names


def _port(text: str) -> int | None:
    return None if text.strip().lower() in {"", "off"} else _number(int, "a TCP port", 1, 65535)(text)


def _text(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError("a printable text, without a line end")
    return text


def default_name() -> str:
    """Return this host's name, with what a worker's name may not have replaced."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:60] or "worker"


def _setting(default: Any, parse: Callable[[str], Any], doc: str) -> Any:
    if callable(default):
        return attrs.field(factory=default, metadata={"parse": parse, "help": doc})
    return attrs.field(default=default, metadata={"parse": parse, "help": doc})


_COUNT = "entries"


@attrs.frozen(kw_only=True)
class Settings:
    """All settings of one process."""

    redis_url: str = _setting(
        "redis://127.0.0.1:6379/0", _text, "Redis: redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://"
    )
    orders_url: str = _setting("sqlite:///stagedoor.db", _text, "the order book's database, as SQLAlchemy writes it")
    tickets_dir: Path = _setting(  # noqa: RUF009 - it makes an attrs field, no default that is shared
        lambda: Path("tickets"), Path, "the folder of the ticket files, shared by all hosts"
    )
    namespace: str = _setting(
        "jobs",
        _matching(NAMESPACE_PATTERN, "1 to 32 letters, digits, '.', '_', '-', on Redis Cluster in braces"),
        "the first part of every Redis key",
    )
    name: str = _setting(
        default_name,
        _matching(NAME_PATTERN, "1 to 64 letters, digits, '.', '_' or '-'"),
        "the worker's name; the host's by default",
    )
    slots: int = _setting(8, _number(int, "slots", 1, 256), "handlers that run at once")
    read_count: int = _setting(10, _number(int, _COUNT, 1, 1000), "entries that an ordinary read takes at most")
    read_ahead: int = _setting(
        500, _number(int, _COUNT, 0, 10_000), "entries read ahead at most, for kinds that take well under 1 ms"
    )
    block_ms: int = _setting(5000, _number(int, "ms", 10, 60_000), "how long an idle read waits, in ms")
    plugins: tuple[str, ...] = _setting(
        (), _modules, "modules with handlers, flows or renderers, separated by commas, besides entry points"
    )
    ticket_renderer: str = _setting("ticket-pdf", _matching(NAME_PATTERN, "a renderer's name"), "which draws tickets")
    missing_glyphs: str = _setting(
        "replace",
        _one_of("replace", "refuse"),
        "what is done about characters that no font draws: replace each by a mark and tell, or refuse the job",
    )
    relay_every_ms: int = _setting(100, _number(int, "ms", 1, 60_000), "the relay's pause when the outbox is empty, ms")
    metrics_port: int | None = _setting(
        None, _port, "TCP port of /metrics, /healthz and /livez on 127.0.0.1; off by default"
    )
    reclaim_idle_s: float = _setting(
        60.0, _number(float, "seconds", 1, 86_400), "idle time after which an entry is taken from anybody"
    )
    reclaim_every_s: float = _setting(30.0, _number(float, "seconds", 0.05, 3600), "pause between two reclaims")
    liveness_ttl_s: float = _setting(
        10.0, _number(float, "seconds", 0.2, 3600), "time without a beat after which a worker has lapsed"
    )
    beat_every_s: float = _setting(2.5, _number(float, "seconds", 0.05, 900), "pause between two beats")
    sweep_every_s: float = _setting(2.0, _number(float, "seconds", 0.05, 900), "pause between two sweeps")
    renew_every_s: float = _setting(10.0, _number(float, "seconds", 0.05, 900), "pause between two renewals")
    max_attempts: int = _setting(5, _number(int, "attempts", 1, 1000), "attempts before a job is dead-lettered")
    max_crashes: int = _setting(5, _number(int, "crashes", 1, 1000), "crashes before an entry is poison")
    backoff_base_s: float = _setting(1.0, _number(float, "seconds", 0, 86_400), "longest wait after the first attempt")
    backoff_cap_s: float = _setting(300.0, _number(float, "seconds", 0, 2_592_000), "longest wait between attempts")
    grace_s: float = _setting(25.0, _number(float, "seconds", 2, 86_400), "time to drain after the first SIGTERM")
    stream_maxlen: int = _setting(100_000, _number(int, _COUNT, 100, 100_000_000), "the stream's MAXLEN")
    dead_maxlen: int = _setting(10_000, _number(int, _COUNT, 100, 100_000_000), "the dead letters' MAXLEN")
    flow_lease_s: float = _setting(30.0, _number(float, "seconds", 1, 3600), "time to live of a flow call's lease")
    flow_keep_s: float = _setting(604_800.0, _number(float, "seconds", 1, 31_622_400), "how long ended calls are kept")
    log_format: str = _setting("text", _one_of("text", "json"), "how log lines look: text or json")

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None, flags: Mapping[str, str] | None = None) -> "Settings":
        """Return the settings from the environment and the flags.

        Args:
            environ: the process' environment by default.
            flags: texts by setting name; they win over the environment.

        Raises:
            ConfigurationError: every unknown variable and every bad value at once.
        """
        environ = os.environ if environ is None else environ
        texts, problems = _from_environment(environ)
        texts.update({name: ("--" + name.replace("_", "-"), text) for name, text in (flags or {}).items()})
        values: dict[str, Any] = {}
        for name, (source, text) in texts.items():
            try:
                values[name] = FIELDS[name].metadata["parse"](text)
            except ValueError as error:
                # An address may carry a password, and a bad one is often a good one with a line end too much.
                found = "this address" if name.endswith("_url") else f"{text!a}"
                problems.append(f"{source}: {found} is not allowed; take {error}")
        if problems:
            raise ConfigurationError(problems)
        settings = cls(**values)
        problems = _contradictions(settings)
        if problems:
            raise ConfigurationError(problems)
        return settings


FIELDS: Mapping[str, "attrs.Attribute[Any]"] = {field.name: field for field in attrs.fields(Settings)}


def _from_environment(environ: Mapping[str, str]) -> tuple[dict[str, tuple[str, str]], list[str]]:
    texts: dict[str, tuple[str, str]] = {}
    problems = []
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable in NOT_OURS:
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name in FIELDS and variable == PREFIX + name.upper():
            texts[name] = (variable, environ[variable])
        else:
            problems.append(f"{variable}: there is no such setting; {_nearest(name)}")
    return texts, problems


def _nearest(name: str) -> str:
    import difflib  # noqa: PLC0415 - only for a mistake

    close = difflib.get_close_matches(name, FIELDS, n=1)
    if close:
        return f"did you mean {PREFIX}{close[0].upper()}?"
    return "the settings are " + ", ".join(PREFIX + known.upper() for known in FIELDS)


def _contradictions(settings: Settings) -> list[str]:
    problems = []
    if settings.beat_every_s * 2 > settings.liveness_ttl_s:
        problems.append(
            f"beat_every_s: {settings.beat_every_s:g} is more than half of liveness_ttl_s "
            f"({settings.liveness_ttl_s:g}); one late beat would make a live worker lapse"
        )
    if settings.renew_every_s * 3 > settings.reclaim_idle_s:
        problems.append(
            f"renew_every_s: {settings.renew_every_s:g} is more than a third of reclaim_idle_s "
            f"({settings.reclaim_idle_s:g}); a live worker would be robbed"
        )
    if settings.redis_url.startswith("redis+cluster://") and not settings.namespace.startswith("{"):
        problems.append(
            f"namespace: {settings.namespace!r} is not in braces; on Redis Cluster all keys have to be in one slot: "
            f"write it {{{settings.namespace}}}"
        )
    if settings.backoff_base_s > settings.backoff_cap_s:
        problems.append(
            f"backoff_base_s: {settings.backoff_base_s:g} is more than backoff_cap_s ({settings.backoff_cap_s:g})"
        )
    return problems
