"""Logs: one line for each event, whatever is in it, and nobody waits for whoever reads them."""

import io
import json
import threading
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from stagedoor import events as all_events
from stagedoor.cli.log_line import Line
from stagedoor.cli.log_text import _SENTENCES, TextLines
from stagedoor.cli.logs import LineWriter, Logs, json_line
from stagedoor.events import (
    BrokerDown,
    DeliverySettled,
    DeliveryStarted,
    Event,
    EventStream,
    JobsHandedBack,
    KindUnknown,
    RowsPublished,
    Warned,
    WorkerStopped,
    WorkerStopping,
)

EVIL = "a\nb\x1b[31mc\x85d\u2028e\u2029f\u202eg\x00h\rj"
EVENTS = [
    kind
    for kind in vars(all_events).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
]


def filled(kind: type[Event], text: str = EVIL) -> Event:
    """Return an event of this kind in which every text is *text* and every number is 2."""
    values: dict[str, Any] = {}
    for field in attrs.fields(kind):
        kinds = str(field.type)
        values[field.name] = (text,) if "tuple" in kinds else text if "str" in kinds else True if "bool" in kinds else 2
    return kind(**values)


def told(log_format: str, *events: Event, level: str = "debug", **options: Any) -> list[str]:
    """Return the lines that are written for these events."""
    stream = io.StringIO()
    logs = Logs(log_format, level=level, stream=stream, **options)
    for event in events:
        logs.take(event)
    logs.flush()
    return stream.getvalue().split("\n")[:-1]


def text_of(event: Event, **options: Any) -> str:
    """Return a line for people without its time."""
    [line] = told("text", event, **options)
    return line[len("00:00:00.000 ") :]


# -- one line for each event --------------------------------------------------------


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_every_event_is_one_line_whatever_is_in_it(kind: type[Event], log_format: str) -> None:
    [line] = told(log_format, filled(kind))
    assert line.isprintable()
    if log_format == "json":
        assert json.loads(line)["event"] == filled(kind).name
        assert line.isascii()


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_every_event_has_words_for_people_that_name_only_fields_it_has(kind: type[Event]) -> None:
    assert filled(kind).name in _SENTENCES
    assert "?" not in text_of(filled(kind, text="x"))


def test_a_long_text_is_cut() -> None:
    [text] = told("text", Warned(message="x" * 100_000))
    [data] = told("json", Warned(message="x" * 100_000))
    assert len(text) < 2000
    assert len(data) < 2000


def test_json_lines_carry_time_level_name_and_fields() -> None:
    line = Line(at=1_782_928_800.1239, level="info", name="x", fields={"n": 1, "t": ("a", "b"), "at": "mine", "f": 0.5})
    assert json_line(line) == (
        '{"at":"2026-07-01T18:00:00.123Z","level":"info","event":"x","n":1,"t":["a","b"],"f":0.5}'
    )


def test_what_is_below_the_level_is_not_told() -> None:
    published = RowsPublished(added=1, duplicates=0)
    assert told("json", published, level="info") == []
    assert len(told("json", published, level="debug")) == 1
    assert told("json", filled(DeliveryStarted), level="info") == []


# -- words ------------------------------------------------------------------------------


def test_the_canonical_line_of_a_delivery_is_in_columns() -> None:
    done = DeliverySettled(
        outcome="done",
        kind="render_tickets",
        entry_id="5-0",
        order_id=4471,
        outbox_id=3,
        attempt=1,
        deliveries=1,
        request_id="r-7",
        queue_age_s=0.012,
        run_s=0.061,
    )
    assert text_of(done) == (
        "  done     render_tickets  order 4471       61 ms  waited 12 ms  entry_id=5-0  request_id=r-7"
    )
    dead = DeliverySettled(
        outcome="dead", kind=None, entry_id="6-0", deliveries=3, reason="malformed", error="order_id: no"
    )
    assert text_of(dead) == ("✗ dead     malformed       delivery 3, malformed, order_id: no  entry_id=6-0")


def test_the_line_of_a_flows_entry_says_which_call_it_was() -> None:
    passed = DeliverySettled(
        outcome="settled", kind="close-order", entry_id="5-0", call_id="outbox-3", deliveries=1, run_s=0.061
    )
    assert text_of(passed) == "  settled  close-order     call outbox-3     61 ms  entry_id=5-0"


@pytest.mark.parametrize(
    "ended,error,said",
    [
        ("done", None, "  done     f               call c1  entry_id=5-0"),
        ("waiting", None, "  waits    f               call c1  entry_id=5-0"),
        ("sleeping", None, "  sleeps   f               call c1  entry_id=5-0"),
        ("failed", "E: a\nb", r"✗ failed   f               call c1       E: a\nb  entry_id=5-0"),
        ("parked", "flow_changed: no", "✗ parked   f               call c1       flow_changed: no  entry_id=5-0"),
        ("cancelled", "C: asked", "  cancelled  f               call c1       C: asked  entry_id=5-0"),
    ],
)
def test_the_line_of_a_flows_entry_says_how_its_pass_has_left_the_call(
    ended: str, error: str | None, said: str
) -> None:
    passed = DeliverySettled(
        outcome="settled", kind="f", entry_id="5-0", call_id="c1", deliveries=1, ended=ended, error=error
    )
    assert text_of(passed) == said


def test_each_hand_back_has_its_line_for_who_debugs_and_its_kind_one_for_who_operates() -> None:
    hops = [DeliverySettled(outcome="unknown", kind="k", entry_id="5-0", deliveries=1, hops=n) for n in range(1, 70)]
    assert {one.severity for one in hops} == {"debug"}
    said = "  unknown  k               handed back 1 time, for no module in plugins knows it  entry_id=5-0"
    assert text_of(hops[0]) == said
    assert text_of(KindUnknown(kind="k", entry_id="5-0", order_id=7)) == (
        "! no module in plugins knows the kind k: its jobs are handed back until a worker knows it, for a day  "
        "entry_id=5-0  order_id=7"
    )


@pytest.mark.parametrize(
    "count,kinds,or_more,said",
    [
        (1, 1, False, "1 time in 2 min, of 1 kind that"),
        (12_345, 7, False, "12,345 times in 2 min, of 7 kinds that"),
        (12_345, 1000, True, "12,345 times in 2 min, of 1,000 or more kinds that"),
    ],
)
def test_hand_backs_are_counted(count: int, kinds: int, or_more: bool, said: str) -> None:
    event = JobsHandedBack(count=count, kinds=kinds, or_more=or_more, within_s=120)
    assert text_of(event) == f"! jobs were handed back {said} no module in plugins knows"


def test_numbers_have_the_words_that_fit_them() -> None:
    assert text_of(RowsPublished(added=1, duplicates=0)) == "  1 outbox row published"
    assert text_of(RowsPublished(added=2, duplicates=1)) == "  2 outbox rows published  duplicates=1"
    assert text_of(WorkerStopping(worker="w", why="SIGTERM", held=0, grace_s=25.0)) == "  SIGTERM: worker w stops"
    assert "finishes the 1 job it holds" in text_of(WorkerStopping(worker="w", why="SIGTERM", held=1, grace_s=25.0))
    assert text_of(WorkerStopped(worker="w", released=0, owed=0, orphaned=0)) == "  worker w has stopped"
    assert text_of(WorkerStopped(worker="w", released=2, owed=0, orphaned=1)).endswith(": 2 released, 1 orphaned")


def test_redis_away_names_the_address_and_what_to_do() -> None:
    line = text_of(BrokerDown(call="read", error="Connection refused"), redis_url="redis://u:***@h:6379/0")
    assert line == (
        "! Redis cannot be used at redis://u:***@h:6379/0 (Connection refused). Start it, or set STAGEDOOR_REDIS_URL; "
        "we wait and go on when it is back, nothing is lost"
    )


def test_only_a_terminal_gets_colours() -> None:
    line = Line(at=0, level="error", name="warned", fields={"message": "m"})
    assert "\x1b[31m" in TextLines(has_colour=True)(line)
    assert "\x1b" not in TextLines(has_colour=False)(line)


def test_a_terminal_gets_colours_unless_it_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for no_colour in ("", "1"):
        monkeypatch.setenv("NO_COLOR", no_colour)
        terminal = Terminal()
        logs = Logs("text", stream=terminal)
        logs.take(Warned(message="m"))
        logs.flush()
        assert ("\x1b[" in terminal.getvalue()) is (no_colour == "")


# -- what handlers say ---------------------------------------------------------------------


def test_a_handlers_words_come_with_what_was_bound() -> None:
    stream = io.StringIO()
    logs = Logs("json", stream=stream)
    log = logs.log.bind(kind="k", order_id=7)
    log.info("tickets_issued", tickets=2, evil=EVIL)
    log.debug("not told")
    log.warning("slow", by=1.5)
    logs.flush()
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["event"], first["kind"], first["order_id"], first["tickets"]) == ("tickets_issued", "k", 7, 2)
    assert first["evil"].isprintable()
    assert (second["level"], second["by"]) == ("warning", 1.5)


def test_an_exception_is_whole_in_json_and_its_gist_in_text() -> None:
    for log_format in ("json", "text"):
        stream = io.StringIO()
        logs = Logs(log_format, stream=stream)
        try:
            int("no\nluck")
        except ValueError:
            logs.log.exception("it_failed")
        logs.flush()
        [line] = stream.getvalue().split("\n")[:-1]
        if log_format == "json":
            assert json.loads(line)["exception"].startswith("Traceback")
        else:
            assert "Traceback" not in line
            assert "luck" in line


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_value_that_cannot_be_written_is_named_and_the_line_stays(log_format: str) -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    stream = io.StringIO()
    logs = Logs(log_format, stream=stream)
    logs.log.info("bad", value=Broken(), other="kept")
    logs.flush()
    [line] = stream.getvalue().splitlines()
    assert "Broken, whose text could not be shown: RuntimeError" in line
    assert "bad" in line
    assert "kept" in line


def test_a_line_that_cannot_be_made_does_not_end_the_logs() -> None:
    def fail(line: Line) -> str:
        raise RuntimeError("no line")

    stream = io.StringIO()
    writer = LineWriter(stream, fail)
    writer.add(Line(at=0.0, level="info", name="bad", fields={}))
    writer.flush()
    assert '"event":"log_line_failed","of":"bad","error":"RuntimeError"' in stream.getvalue()


# -- nobody waits ------------------------------------------------------------------------------


class Stuck(io.StringIO):
    """A stream that takes nothing until it is let go, like a pipe that nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.let_go = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        self.entered.set()
        self.let_go.wait(30)
        return super().write(text)


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    stream = Stuck()
    yield stream
    stream.let_go.set()


def test_a_stream_that_takes_nothing_holds_nobody_up_and_drops_are_counted(stuck: Stuck) -> None:
    writer = LineWriter(stuck, json_line, most_waiting=10)
    writer.add(Line(at=0, level="info", name="first", fields={}))
    assert stuck.entered.wait(30)
    for number in range(100):
        writer.add(Line(at=0, level="info", name=f"n{number}", fields={}))
    assert not writer.flush(0.01)
    stuck.let_go.set()
    assert writer.flush(30)
    lines = [json.loads(line) for line in stuck.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["first", *(f"n{number}" for number in range(10)), "log_lines_dropped"]
    assert lines[-1]["dropped"] == 90


@pytest.mark.parametrize("stream", [None, "closed", "broken"])
def test_a_stream_that_is_closed_or_missing_is_no_error(stream: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    target: io.StringIO | None = None if stream is None else io.StringIO() if stream == "closed" else Broken()
    if stream == "closed" and target is not None:
        target.close()
    monkeypatch.setattr("sys.stderr", None)
    logs = Logs("text", stream=target)
    events = EventStream()
    logs.listen(events)
    for _ in range(3):
        events.emit(Warned(message="m"))
        logs.flush()
    assert events.is_heard


def test_lines_of_many_threads_are_all_written_whole() -> None:
    stream = io.StringIO()
    logs = Logs("json", stream=stream)

    def talk(number: int) -> None:
        for count in range(200):
            logs.log.info("said", by=number, count=count)

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    logs.flush()
    said = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert sorted((line["by"], line["count"]) for line in said) == [
        (by, count) for by in range(8) for count in range(200)
    ]
