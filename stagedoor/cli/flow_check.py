"""``flow check``: the flows that are installed here, run over histories of calls; offline."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import click
from rich.text import Text

from stagedoor.cli.output import print_json, show
from stagedoor.cli.plugins import load_flows
from stagedoor.cli.text import printable
from stagedoor.core.flow import FlowSpec
from stagedoor.core.history_data import journal_of
from stagedoor.core.journal import Journal
from stagedoor.errors import InvalidHistory
from stagedoor.flows import Finding, check_history, check_source
from stagedoor.settings import Settings

ENDINGS = frozenset((".json", ".jsonl"))
"""Of a folder's files, those that are read."""
MISFIT = "misfit"
_MARKS = {MISFIT: ("✗", "red"), "warning": ("!", "yellow")}


@attrs.frozen(kw_only=True)
class Checked:
    """One history, and what was found about it."""

    path: Path
    call_id: str
    flow: str
    findings: tuple[Finding, ...]

    @property
    def fits(self) -> bool:
        """Whether the call could go on with this code."""
        return all(finding.level != MISFIT for finding in self.findings)


def check(settings: Settings, paths: Sequence[Path], *, as_json: bool) -> int:
    """Check all histories of these files and folders; returns the exit code.

    Raises:
        click.UsageError: a file cannot be read, or is no history.
        ConfigurationError: a plugin cannot be imported.
    """
    flows = load_flows(settings.plugins)
    checked: list[Checked] = []
    for path, journal in _histories(paths):
        findings = _findings(flows.get(journal.flow), journal)
        checked.append(Checked(path=path, call_id=journal.call_id, flow=journal.flow, findings=findings))
    if not checked:
        raise click.UsageError("no history was found; a folder's are its files that end in .json or .jsonl")
    if as_json:
        print_json({"histories": [_data(one) for one in checked]})
    else:
        _show(checked)
    return int(not all(one.fits for one in checked))


def _findings(spec: FlowSpec | None, journal: Journal) -> tuple[Finding, ...]:
    if spec is None:
        return (Finding(MISFIT, f"no flow {journal.flow!r} is installed here"),)
    return (*check_history(spec, journal), *check_source(spec))


def _histories(paths: Sequence[Path]) -> Iterator[tuple[Path, Journal]]:
    for path in paths:
        files = sorted(file for file in path.rglob("*") if file.suffix in ENDINGS) if path.is_dir() else [path]
        for file in files:
            for data in _objects(file):
                try:
                    yield file, journal_of(data)
                except InvalidHistory as error:
                    raise click.UsageError(f"{file}: {error}") from error


def _objects(file: Path) -> Iterator[Any]:
    """Yield the JSON values of a file: one, or one on each line."""
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file}: cannot be read: {error}") from error
    decoder, at = json.JSONDecoder(), 0
    while rest := text[at:].lstrip():
        at = len(text) - len(rest)
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise click.UsageError(f"{file}: no JSON as 'flow show --json' prints it: {error}") from error
        yield value


def _data(one: Checked) -> dict[str, Any]:
    findings = [attrs.asdict(finding) for finding in one.findings]
    return {"path": str(one.path), "id": one.call_id, "flow": one.flow, "fits": one.fits, "findings": findings}


def _show(checked: Sequence[Checked]) -> None:
    parts: list[Text] = []
    said: set[Finding] = set()
    for one in checked:
        mark = ("✓", "green") if one.fits else ("✗", "red")
        verdict = "fits" if one.fits else "does not fit"
        parts.append(Text.assemble(mark, f" {printable(str(one.path))}: call {one.call_id} of {one.flow} {verdict}"))
        for finding in one.findings:
            # What is warned of is the code's, and the same for each of its calls.
            if finding in said:
                continue
            said |= {finding} if finding.level != MISFIT else set()
            where = f"{finding.where}: " if finding.where else ""
            parts.append(Text.assemble("    ", _MARKS[finding.level], " ", printable(f"{where}{finding.text}", 4000)))
    wrong = sum(not one.fits for one in checked)
    total = f"{len(checked):,} {'history' if len(checked) == 1 else 'histories'}"
    bad = Text(f"{wrong:,} of {len(checked):,} no longer fit", style="red")
    ending = bad if wrong else Text(f"{total}: all fit", style="green")
    show(*parts, Text(), ending)
