"""Log lines for people: the time, what happened in a few words, and what one may have to look up."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from stagedoor.cli.log_line import Line
from stagedoor.cli.text import counted, printable, span, text_of

_RESET, _DIM, _BOLD = "\x1b[0m", "\x1b[2m", "\x1b[1m"
_COLOURS = {"debug": _DIM, "info": "", "warning": "\x1b[33m", "error": "\x1b[31m"}
_OUTCOMES = {
    "done": "\x1b[32m",
    "settled": "\x1b[32m",
    "retry": "\x1b[33m",
    "unknown": "\x1b[33m",
    "dead": "\x1b[31m",
    "failed": "\x1b[31m",
    "parked": "\x1b[31m",
}
_ENDED = {"waiting": "waits", "sleeping": "sleeps"}
_MARKS = {"debug": " ", "info": " ", "warning": "!", "error": "✗"}

type Fields = dict[str, Any]
type Sentence = Callable[[Fields], str]
"""Takes out of the fields what it says; what it leaves is added as name=value."""


class TextLines:
    """Makes lines for people.

    Args:
        has_colour: whether the terminal shows colours.
        redis_url: where Redis is, its password hidden.
    """

    def __init__(self, *, has_colour: bool = False, redis_url: str = "") -> None:
        self._has_colour = has_colour
        self._redis_url = redis_url

    def __call__(self, line: Line) -> str:
        """Return the text of one line."""
        fields = dict(line.fields)
        colour, mark = _COLOURS.get(line.level, ""), _MARKS.get(line.level, " ")
        if line.name == "delivery_settled":
            # What became of a call says more than that its pass has settled the entry.
            word = str(fields.get("ended") or fields.get("outcome"))
            colour = _OUTCOMES.get(word, colour)
        if line.name in {"broker_down", "broker_up"} and self._redis_url:
            fields["url"] = self._redis_url
        sentence = _SENTENCES.get(line.name, _named(line.name))(fields)
        if "exception" in fields:
            fields["exception"] = _gist(str(fields["exception"]))
        rest = "  ".join(f"{key}={_shown(value)}" for key, value in fields.items())
        parts = [
            self._painted(_clock(line.at), _DIM),
            self._painted(mark, colour),
            self._painted(sentence, colour),
        ]
        return " ".join(parts) + (self._painted(f"  {rest}", _DIM) if rest else "")

    def _painted(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_RESET}" if self._has_colour and colour else text


def _clock(at: float) -> str:
    return f"{time.strftime('%H:%M:%S', time.localtime(at))}.{int(at * 1000) % 1000:03d}"


def _shown(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ",".join(_shown(item) for item in value)
    text = printable(text_of(value))
    return f'"{text}"' if " " in text else text


def _gist(traceback: str) -> str:
    """Return what a traceback ends with, and where: a line for people is one line; json has it all."""
    lines = traceback.strip().splitlines() or [""]
    places = [line.strip() for line in lines if line.startswith("  File ")]
    return f"{lines[-1]} ({places[-1]})" if places else lines[-1]


# -- the sentences --------------------------------------------------------------


def _named(name: str) -> Sentence:
    """Say the name of an event that has no sentence: a handler's own."""
    shown = printable(name).replace("_", " ")
    return lambda _fields: shown


def _template(text: str) -> Sentence:
    """Fill a sentence with fields and take them out; those that it does not name are left."""

    def say(fields: Fields) -> str:
        filled = _Filled(fields)
        said = text.format_map(filled)
        for name in filled.used:
            fields.pop(name, None)
        return said

    return say


class _Word(str):
    """A field's text; the format ``{count:row|rows}`` says it with the word that fits the number."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        one, bar, many = spec.partition("|")
        return f"{self} {one if self == '1' else many}" if bar else super().__format__(spec)


class _Filled(dict[str, _Word]):
    """The fields as text, remembering which were asked for."""

    def __init__(self, fields: Fields) -> None:
        super().__init__()
        self._fields = fields
        self.used: set[str] = set()

    def __missing__(self, name: str) -> _Word:
        self.used.add(name)
        value = self._fields.get(name, "?")
        return _Word(
            ", ".join(map(_shown, value)) if isinstance(value, tuple | list) else printable(text_of(value), 1000)
        )


def _delivery(fields: Fields) -> str:
    """The canonical line of a delivery, in columns: what became of it, kind, order, attempt, times."""
    word, ended = printable(str(fields.pop("outcome", "?"))), fields.pop("ended", None)
    word = _ENDED.get(ended, printable(str(ended))) if ended else word
    hops = fields.pop("hops", None)
    order = fields.pop("order_id", None)
    kind = printable(str(fields.pop("kind", None) or "malformed"))
    run_s, queue_s = fields.pop("run_s", None), fields.pop("queue_age_s", None)
    attempt, deliveries, crashes = fields.pop("attempt", 1), fields.pop("deliveries", 1), fields.pop("crashes", 0)
    retry_s, reason, error = fields.pop("retry_in_s", None), fields.pop("reason", None), fields.pop("error", None)
    call = fields.pop("call_id", None)
    fields.pop("outbox_id", None)
    whose = f"order {order}" if order else f"call {printable(str(call))}" if call else ""
    columns = [f"{word:<7}", f"{kind:<14}", f"{whose:<12}"]
    columns += [f"{span(run_s):>8}", f"waited {span(queue_s)}" if queue_s is not None else ""]
    extras = [
        f"attempt {attempt}" if attempt and attempt > 1 else "",
        f"delivery {deliveries}" if deliveries > 1 else "",
        counted(crashes, "crash", "crashes") if crashes else "",
        f"handed back {counted(hops, 'time')}, for no module in plugins knows it" if hops else "",
        f"again in {span(retry_s)}" if retry_s is not None else "",
        printable(str(reason)) if reason else "",
        printable(str(error)) if error else "",
    ]
    said = "  ".join(column for column in columns if column.strip())
    told = ", ".join(extra for extra in extras if extra)
    return f"{said}  {told}".rstrip()


def _started(fields: Fields) -> str:
    gil = fields.pop("gil", None)
    fields.pop("incarnation", None)
    said = _template("worker {worker} reads with {slots} slots: {kinds}")(fields)
    return f"{said}; with a GIL" if gil else said


def _broker_down(fields: Fields) -> str:
    where = f" at {fields.pop('url')}" if "url" in fields else ""
    fields.pop("call", None)
    error = printable(str(fields.pop("error", "")))
    if "WRONGTYPE" in error:
        return (
            f"Redis{where} holds something else under a name of ours ({error}). python -m stagedoor doctor names it; "
            "we try again, nothing is lost"
        )
    return (
        f"Redis cannot be used{where} ({error}). Start it, or set STAGEDOOR_REDIS_URL; "
        "we wait and go on when it is back, nothing is lost"
    )


def _broker_up(fields: Fields) -> str:
    fields.pop("url", None)
    return f"Redis is back after {span(fields.pop('down_s', None))}"


def _book_down(fields: Fields) -> str:
    fields.pop("call", None)
    return f"the order book cannot be used ({printable(str(fields.pop('error', '')))}); we wait, nothing is lost"


def _stopping(fields: Fields) -> str:
    if fields.get("held"):
        return _template("{why}: worker {worker} finishes the {held:job|jobs} it holds, within {grace_s} s")(fields)
    for name in ("held", "grace_s"):
        fields.pop(name, None)
    return _template("{why}: worker {worker} stops")(fields)


def _stopped(fields: Fields) -> str:
    """Say that the worker has stopped, and of what was left only what is not zero."""
    left = [f"{count} {name}" for name in ("released", "owed", "orphaned") if (count := fields.pop(name, 0))]
    return _template("worker {worker} has stopped")(fields) + (f": {', '.join(left)}" if left else "")


def _published(fields: Fields) -> str:
    if not fields.get("duplicates"):
        fields.pop("duplicates", None)
    return _template("{added:outbox row|outbox rows} published")(fields)


def _swept(fields: Fields) -> str:
    crashed = fields.pop("crashed", False)
    said = _template("worker {worker} has not been seen: its {entries:entry goes|entries go} to others")(fields)
    return f"{said}, counted as a crash" if crashed else said


def _handed_back(fields: Fields) -> str:
    times, kinds = (fields.pop(name, 0) for name in ("count", "kinds"))
    more = " or more" if fields.pop("or_more", False) else ""
    of = f"{kinds:,}{more} {'kind' if kinds == 1 and not more else 'kinds'}"
    within = span(fields.pop("within_s", None))
    return f"jobs were handed back {counted(times, 'time')} in {within}, of {of} that no module in plugins knows"


_SENTENCES: Mapping[str, Sentence] = {
    "worker_started": _started,
    "worker_stopping": _stopping,
    "worker_stopped": _stopped,
    "warned": _template("{message}"),
    "delivery_started": _template("started {kind:<14}  order {order_id}  attempt {attempt}"),
    "delivery_settled": _delivery,
    "kind_unknown": _template(
        "no module in plugins knows the kind {kind}: its jobs are handed back until a worker knows it, for a day"
    ),
    "jobs_handed_back": _handed_back,
    "tenure_lost": _template(
        "{kind} {entry_id} is somebody else's now, as we noticed at the {at}; nothing was written"
    ),
    "settle_refused": _template("Redis refused the outcome of {entry_id}; it is tried again: {problem}"),
    "handler_orphaned": _template(
        "the handler of {kind} did not end at its timeout; {orphaned} of {slots} slots are gone until it does"
    ),
    "result_ignored": _template("the handler of {kind} returned {returned}; nothing reads it"),
    "entries_returned": _template("{count:entry|entries} given back ({why})"),
    "worker_swept": _swept,
    "entries_reclaimed": _template("nobody had touched {count:entry|entries} for too long; others take over"),
    "entry_trimmed": _template("entry {entry_id} was deleted while it was owed: a lost job; find out who deletes"),
    "unread_trimmed": _template(
        "{count:entry of {stream} was|entries of {stream} were} deleted before anybody had read them: "
        "lost jobs; find out who deletes"
    ),
    "jobs_promoted": _template("{count:delayed job is|delayed jobs are} due"),
    "group_recreated": _template("the consumer group was gone and was made anew"),
    "broker_down": _broker_down,
    "broker_up": _broker_up,
    "order_book_down": _book_down,
    "order_book_up": lambda fields: f"the order book is back after {span(fields.pop('down_s', None))}",
    "relay_started": _template("relay reads the outbox of book {book}"),
    "relay_stopped": _template("the relay has stopped ({why})"),
    "rows_published": _published,
    "stream_full": _template(
        "the stream is full: {waiting:row waits|rows wait} in the outbox until workers have caught up"
    ),
    "stream_has_room": _template("the stream takes rows again"),
    "row_parked": _template("outbox row {outbox_id} can never make an entry and was set aside: {error}"),
    "published_lost": _template(
        "Redis has lost rows that it had confirmed (it counts {confirmed}, it said {recorded}): "
        "{offered_again:row is|rows are} offered again"
    ),
    "log_lines_dropped": _template("{dropped:log line was|log lines were} dropped: nobody read them"),
}
