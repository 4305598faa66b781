"""``flow``: start calls of flows, look at them, tell them something, and check code against their histories."""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click

from stagedoor.cli.options import SettingsCommand
from stagedoor.core.call import MAX_CALL_BYTES, MAX_VALUE_BYTES, CallState
from stagedoor.core.journal import CALL_ID_PATTERN, is_call_id, is_key
from stagedoor.errors import FlowLimitExceeded
from stagedoor.settings import Settings

LOOKING = ("redis_url", "namespace")
STARTING = ("redis_url", "namespace", "stream_maxlen", "plugins")
CHECKING = ("plugins",)


class CallId(click.ParamType[str]):
    """The id of a call."""

    name = "ID"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the id, or refuse it."""
        if not is_call_id(str(value)):
            self.fail(f"expected an id of a call, {CALL_ID_PATTERN}, found {str(value)[:70]!a}", param, ctx)
        return str(value)


class Key(click.ParamType[str]):
    """A name that a flow may use: of a signal."""

    name = "NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or refuse it."""
        if not is_key(str(value)):
            what = "expected 1 to 200 printable characters without a leading dot"
            self.fail(f"{what}, found {str(value)[:70]!a}", param, ctx)
        return str(value)


class Delay(click.ParamType[float]):
    """Seconds from now."""

    name = "SECONDS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds, or refuse them."""
        from stagedoor.flows.call import LONGEST_S  # noqa: PLC0415 - not for --help

        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds <= LONGEST_S:
            self.fail(f"expected 0 to {LONGEST_S:.0f} seconds (ten years), found {str(value)[:40]!a}", param, ctx)
        return seconds


class Metadatum(click.ParamType[tuple[str, str]]):
    """One name with its value, as ``name=value``."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return name and value, or refuse them."""
        name, sign, text = str(value).partition("=")
        if not sign:
            self.fail(f"expected NAME=VALUE, found {str(value)[:70]!a}", param, ctx)
        if not is_key(name):
            self.fail(
                f"expected a name of 1 to 200 printable characters without a leading dot, found {name[:70]!a}",
                param,
                ctx,
            )
        if not _is_text(text):
            self.fail(f"the value of {name[:70]!a} is no UTF-8", param, ctx)
        return name, text


class Value(click.ParamType[str]):
    """A JSON value; ``-`` reads it from the standard input."""

    name = "VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value as compact JSON text, or refuse it."""
        text = _read_stdin() if value == "-" else str(value)

        def refuse(_word: str) -> NoReturn:
            raise ValueError("NaN and infinite numbers are no JSON")

        try:
            compact = json.dumps(
                json.loads(text, parse_constant=refuse), separators=(",", ":"), ensure_ascii=False, allow_nan=False
            )
            size = len(compact.encode("utf-8"))
        except RecursionError:
            self.fail("the value is nested too deeply", param, ctx)
        except ValueError as error:
            self.fail(f"expected JSON, such as 12 or '\"text\"', found {text[:40]!a}: {error}", param, ctx)
        if size > MAX_VALUE_BYTES:
            self.fail(f"expected at most {MAX_VALUE_BYTES:,} bytes, found {size:,}; send its name instead", param, ctx)
        return compact


def _read_stdin() -> str:
    # A byte more than is allowed, at four bytes a character at most, is enough to refuse it.
    return sys.stdin.read(MAX_VALUE_BYTES * 4 + 1) if sys.stdin is not None else ""


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


CALL_ID = click.argument("call_id", metavar="ID", type=CallId())
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
STATES = [state.value for state in CallState]


@click.group("flow", help="Start calls of flows, look at them, signal, cancel and resume them.")
def command() -> None:
    """Group what is done with calls."""


def _in_group(
    name: str, names: tuple[str, ...], help_line: str, **more: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    return command.command(name, cls=SettingsCommand, setting_names=names, help=help_line, **more)


@_in_group(
    "start",
    STARTING,
    "Start a call of a flow. The id is what makes it one call: with an id that exists nothing is started, "
    "however often this is asked for.",
)
@click.argument("name", metavar="NAME")
@click.option("--id", "call_id", type=CallId(), help="The call's id; a random one if none is given.")
@click.option("--meta", "metadata", type=Metadatum(), multiple=True, help="What the call gets along; repeatable.")
@click.option("--delay", "delay_s", type=Delay(), default=0.0, help="Begin in so many seconds.")
@click.option("--anyway", is_flag=True, help="Also a flow that is not installed here.")
@AS_JSON
def start(
    settings: Settings,
    *,
    name: str,
    call_id: str | None,
    metadata: tuple[tuple[str, str], ...],
    delay_s: float,
    anyway: bool,
    as_json: bool,
) -> int:
    """Start a call; exit code 1 when the id is a call of another flow."""
    from stagedoor.cli import flow_view  # noqa: PLC0415 - not for --help

    doubled = [key for key, _ in metadata if sum(key == other for other, _ in metadata) > 1]
    if doubled:
        raise click.UsageError(f"--meta {doubled[0]}=… is given more than once")
    size = sum(len(part.encode("utf-8")) for pair in metadata for part in pair)
    if size > MAX_CALL_BYTES:
        raise click.UsageError(f"--meta: expected at most {MAX_CALL_BYTES:,} bytes in all, found {size:,}")
    flow_view.check_name(settings, name, is_anyway=anyway)
    with flow_view.opened(settings) as calls:
        wanted = flow_view.new_call(name, call_id, dict(metadata), delay_s)
        try:
            return flow_view.start(calls, wanted, as_json=as_json)
        except FlowLimitExceeded as error:
            raise click.UsageError(str(error)) from error


@_in_group("show", LOOKING, "Show a call. Its steps come in the order of the function, with what it waits for.")
@CALL_ID
@AS_JSON
def show(settings: Settings, call_id: str, *, as_json: bool) -> int:
    """Show a call; exit code 1 when there is none."""
    from stagedoor.cli import flow_view  # noqa: PLC0415 - not for --help

    with flow_view.opened(settings) as calls:
        return flow_view.show_call(calls, call_id, as_json=as_json)


@_in_group(
    "signal",
    LOOKING,
    "Send a call a signal. Its value is JSON, null if none is given; '-' reads it from standard input. "
    "It waits in the call's mailbox until the call takes it.",
    context_settings={"ignore_unknown_options": True},  # the value may be -1
)
@CALL_ID
@click.argument("name", metavar="NAME", type=Key())
@click.argument("value", metavar="[VALUE]", type=Value(), default="null")
@AS_JSON
def signal(settings: Settings, call_id: str, name: str, value: str, *, as_json: bool) -> int:
    """Send a signal; exit code 1 when the call is not there or has ended."""
    from stagedoor.cli import flow_view  # noqa: PLC0415 - not for --help

    with flow_view.opened(settings) as calls:
        return flow_view.signal(calls, call_id, name, value, as_json=as_json)


@_in_group("cancel", LOOKING, "Ask a call to end. It does so at the next operation that it has not done yet.")
@CALL_ID
@AS_JSON
def cancel(settings: Settings, call_id: str, *, as_json: bool) -> int:
    """Cancel a call; exit code 1 when it is not there or has ended."""
    from stagedoor.cli import flow_view  # noqa: PLC0415 - not for --help

    with flow_view.opened(settings) as calls:
        return flow_view.cancel(calls, call_id, as_json=as_json)


@_in_group("resume", LOOKING, "Let a parked call go on. Put right what parked it before.")
@CALL_ID
@AS_JSON
def resume(settings: Settings, call_id: str, *, as_json: bool) -> int:
    """Resume a call; exit code 1 when it is not there, or not parked."""
    from stagedoor.cli import flow_view  # noqa: PLC0415 - not for --help

    with flow_view.opened(settings) as calls:
        return flow_view.resume(calls, call_id, as_json=as_json)


@_in_group("list", LOOKING, "List calls.")
@click.option("--state", type=click.Choice(STATES), help="Only those in this state.")
@click.option("--limit", metavar="N", type=click.IntRange(1, 100_000), default=50, show_default=True, help="At most.")
@AS_JSON
def list_calls(settings: Settings, *, state: str | None, limit: int, as_json: bool) -> None:
    """List calls."""
    from stagedoor.cli import flow_view  # noqa: PLC0415 - not for --help

    with flow_view.opened(settings) as calls:
        flow_view.list_calls(calls, None if state is None else CallState(state), limit=limit, as_json=as_json)


@_in_group(
    "check",
    CHECKING,
    "Check code against histories. The flows that are installed here are run over histories of calls, as 'flow show "
    "--json' prints them, one or many in a file. Needs neither Redis nor orders, and runs no step. Exit code 1 when "
    "one does not fit.",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@AS_JSON
def check(settings: Settings, paths: tuple[Path, ...], *, as_json: bool) -> int:
    """Check histories."""
    from stagedoor.cli import flow_check  # noqa: PLC0415 - not for --help

    return flow_check.check(settings, paths, as_json=as_json)
