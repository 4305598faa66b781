"""Text from elsewhere, made fit for one line of a terminal or a log.

Order data, entries and error messages may hold anything: line ends that would
forge a second line, ESC sequences that would drive the terminal, marks that turn
the direction of writing. Whatever is not printable is written as an escape.
"""

from collections.abc import Iterator, Mapping

LONGEST = 300
FEW_KINDS = 3
LONGEST_SPAN_S = 100_000 * 86_400
"""Some 270 years; a due time that somebody else has written may be 300 digits away, or infinitely far."""


def printable(text: str, longest: int = LONGEST) -> str:
    """Return *text* as one line without anything that is not printable, cut at *longest* characters.

    ``str.isprintable`` is false for control characters, ESC, U+0085, U+2028 and U+2029, for
    marks of direction, for lone surrogates, and for every space but the plain one.
    """
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    if cut.isprintable():
        return cut
    return "".join(char if char.isprintable() else escaped(char) for char in cut)


def text_of(value: object) -> str:
    """Return a value's text; one that cannot be shown is named, and so is what kept it from it."""
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - what a plugin logs may do anything when shown
        return f"({type(value).__qualname__}, whose text could not be shown: {type(error).__qualname__})"


def escaped(char: str) -> str:
    """Return one character as Python writes it in ASCII."""
    return ascii(char)[1:-1]


def counted(count: int | str, one: str, many: str | None = None) -> str:
    """Return a count with the words that fit it: ``1 entry waits``, ``2 entries wait``; *many* is *one* and an s."""
    number = count if isinstance(count, str) else f"{count:,}"
    return f"{number} {one if number == '1' else many or f'{one}s'}"


def unknown_kinds(kinds: Mapping[str, int], *, looked_at: int | None) -> Iterator[str]:
    """Say that jobs wait whose kinds no worker knows: of which most wait by their names, of all others their number.

    Args:
        kinds: how many jobs of each wait.
        looked_at: delayed jobs after which nobody looked any further, None where all were looked at.
    """
    among = "" if looked_at is None else f", among the first {looked_at:,} delayed jobs"
    first = sorted(kinds.items(), key=lambda pair: (-pair[1], pair[0]))
    for kind, count in first[:FEW_KINDS]:
        waiting = counted(count, "job waits", "jobs wait")
        yield f"{waiting} for a worker that knows {printable(kind, 64) or 'its kind'}{among}"
    if rest := first[FEW_KINDS:]:
        jobs = counted(sum(count for _kind, count in rest), "job")
        others = counted(len(rest), "more kind")
        yield f"{jobs} of {others} {'waits' if jobs == '1 job' else 'wait'} for workers that know them{among}"


def span(seconds: float | None) -> str:
    """Return a length of time as people say it; one that nobody can have meant is only called very long."""
    if seconds is None:
        return ""
    if not seconds < LONGEST_SPAN_S:
        return f"more than {LONGEST_SPAN_S // 86_400:,} d"
    if seconds < 0.001:  # noqa: PLR2004 - below it, ms would read 0
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:  # noqa: PLR2004 - two minutes
        return f"{seconds:.1f} s"
    if seconds < 7200:  # noqa: PLR2004 - two hours
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:,.0f} d"  # noqa: PLR2004 - two days
