"""Threads, processes and the outside world: a render touches nothing but its own document."""

import hashlib
import subprocess
import sys
import threading
from collections.abc import Callable

from stagedoor.rendering.api import RenderRequest
from stagedoor_renderers.receipt_pdf import ReceiptPdf
from stagedoor_renderers.ticket_pdf import TicketPdf
from tests.rendering.orders import event, named, no_check, position, request, whole
from tests.rendering.reading import text_of

THREADS = 8
RENDERS = 625
DISTINCT = 1000

_FIRST = """
Zoë Šimon Łucja Þóra Đặng Žofie Ağça Émile Ñuño Ørjan Ánh Ülkü Ősz Ķēniņš Ĝoja Ŵyn Αθηνά Ольга 山田 김 שרה ليلى
""".split()  # noqa: SIM905 - a list of words reads better as words
_LAST = """
Řehoř Żółć Šimková Nguyễn Ærø Çelik Dvořák Größe Ibáñez Jõgi Kovács Ľubica Mňačko Østby Păun Țepeș Ūsiņš Ýrr
""".split()  # noqa: SIM905 - as above


def names(count: int) -> list[str]:
    return [f"{_FIRST[n % len(_FIRST)]} {_LAST[n // len(_FIRST) % len(_LAST)]} {n}" for n in range(count)]


def in_threads(work: Callable[[int], None]) -> None:
    """Run *work* in eight threads that begin at once, and show what any of them raised."""
    begin = threading.Barrier(THREADS, timeout=60)
    raised: list[BaseException] = []

    def run(number: int) -> None:
        try:
            begin.wait()
            work(number)
        except BaseException as error:  # noqa: BLE001 - shown below, in the test's own thread
            raised.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def test_eight_threads_give_the_bytes_of_one(ticket: TicketPdf) -> None:
    """5,000 renders in eight threads, 1,000 accented names; each equals what one thread alone drew."""
    wanted = [named(name) for name in names(DISTINCT)]
    alone = [hashlib.sha256(ticket.render(item, no_check)).digest() for item in wanted]

    def work(number: int) -> None:
        for turn in range(RENDERS):
            # Each thread goes its own way round, so that different documents meet.
            index = (turn * (2 * number + 1) + number) % len(wanted)
            assert hashlib.sha256(ticket.render(wanted[index], no_check)).digest() == alone[index]

    in_threads(work)
    assert len(set(alone)) == DISTINCT


EARLY = (*names(8), "歐陽靖宇", "小鳥遊 蛍", "황보 뷁", "Ἀθηνᾶ Γλαυκῶπις", "მზია ბერიძე", "שרה לוי", "ألف ليلة")

FIRST = """
import hashlib
from tests.rendering.test_isolation import EARLY, in_threads, named, no_check
from stagedoor_renderers.ticket_pdf import TicketPdf
ticket = TicketPdf()
ticket.warm_up()
seen = {}
def work(number):
    for name in EARLY:
        digest = hashlib.sha256(ticket.render(named(name), no_check)).hexdigest()
        assert seen.setdefault(name, digest) == digest
in_threads(work)
print(" ".join(seen[name] for name in EARLY))
"""


def test_eight_threads_that_draw_first_give_the_bytes_of_one(ticket: TicketPdf) -> None:
    """In a fresh process, eight threads start right after the warm-up; glyph pages are cut while they race."""
    alone = [hashlib.sha256(ticket.render(named(name), no_check)).hexdigest() for name in EARLY]
    assert in_process(FIRST).split() == alone


def test_each_ticket_has_its_own_name_and_nobody_elses(ticket: TicketPdf) -> None:
    """All 1,000 names, read from what eight threads drew."""
    everybody = names(DISTINCT)
    texts: dict[str, str] = {}

    def work(number: int) -> None:
        for name in everybody[number::THREADS]:
            texts[name] = text_of(ticket.render(named(name), no_check))

    in_threads(work)
    assert texts.keys() == set(everybody)
    others: set[tuple[str, ...]] = set()
    for name, text in texts.items():
        lines = text.split("\n")
        # By its words, for what is read from the right is extracted in an order of its own.
        assert set(lines.pop(lines.index("NAME") + 1).split()) == set(name.split())
        others.add(tuple(lines))
    assert len(others) == 1, "all but the name is the same on all of them"


def test_receipts_are_as_safe_as_tickets(receipt: ReceiptPdf) -> None:
    wanted = [whole(request(*(position(n, holder=name) for n in range(1, 4)))) for name in names(20)]
    alone = [receipt.render(item, no_check) for item in wanted]

    def work(number: int) -> None:
        for turn in range(20):
            index = (turn + number) % len(wanted)
            assert receipt.render(wanted[index], no_check) == alone[index]

    in_threads(work)


def in_process(code: str, *words: str, **environment: str) -> str:
    path = ":".join(sys.path)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *words],
        env={"PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


DIGEST = """
import time
time.tzset()
from tests.rendering.test_isolation import digest
from stagedoor_renderers.ticket_pdf import TicketPdf
from stagedoor_renderers.receipt_pdf import ReceiptPdf
ticket, receipt = TicketPdf(), ReceiptPdf()
ticket.warm_up()
receipt.warm_up()
print(digest(ticket, receipt), ticket.fingerprint())
"""


def digest(ticket: TicketPdf, receipt: ReceiptPdf) -> str:
    """A digest of tickets and receipts with names in every script."""
    found = hashlib.sha256()
    for name in names(22):
        found.update(ticket.render(named(name), no_check))
    order = whole(request(*(position(n, holder=name) for n, name in enumerate(names(22), 1)), locale="de"))
    found.update(ticket.render(order, no_check))
    found.update(receipt.render(order, no_check))
    return found.hexdigest()


def test_any_process_hash_seed_and_time_zone_give_the_same_bytes(ticket: TicketPdf, receipt: ReceiptPdf) -> None:
    there = in_process(DIGEST, PYTHONHASHSEED="77", TZ="Pacific/Auckland", SOURCE_DATE_EPOCH="99", LANG="tr_TR.UTF-8")
    assert there == f"{digest(ticket, receipt)} {ticket.fingerprint()}"


WATCHED = """
import sys
from tests.rendering.test_isolation import no_check, everything
from stagedoor_renderers.ticket_pdf import TicketPdf
from stagedoor_renderers.receipt_pdf import ReceiptPdf
renderers = (TicketPdf(), ReceiptPdf())
for renderer in renderers:
    renderer.warm_up()
requests = everything()
seen, watching = [], False
def watch(event, arguments):
    if watching and event.split(".")[0] in ("open", "socket", "subprocess", "os", "import", "exec", "compile"):
        seen.append((event, str(arguments)[:200]))
sys.addaudithook(watch)
watching = True
for renderer in renderers:
    for request in requests:
        renderer.render(request, no_check)
        getattr(renderer, "notes", lambda request: ())(request)
watching = False
print(seen)
# A watch that sees nothing proves nothing: it must see this.
watching = True
open("/dev/null").close()
watching = False
print([event for event, arguments in seen])
"""


def everything() -> list[RenderRequest]:
    """Requests that would make a careless renderer open files or connections."""
    evil = [
        "<img src='/etc/hostname'/>",
        "<img src='http://169.254.169.254/latest'/>",
        '<font color=\'__import__("os").system("id")\'>',
        "file:///etc/passwd",
        "山田太郎 ليلى שרה 🎉 क्ष",
    ]
    zones = ["Europe/Berlin", "Asia/Kolkata", "America/St_Johns", "Pacific/Chatham"]
    found = []
    for number, words in enumerate(evil):
        one = event(name=words, venue=words, sub_event=words, terms=words * 50, tz=zones[number % 4])
        holder = position(holder=words, category=words)
        for locale in ("de-CH", "fr", "ja", "ar-EG", "en-IN", "xx-YY"):
            found.append(
                request(holder, event=one, locale=locale, buyer=words, currency=("JPY", "INR", "KWD")[number % 3])
            )
            found.append(whole(found[-1]))
    return found


def test_a_render_opens_no_file_and_no_connection_whatever_the_order_says() -> None:
    assert in_process(WATCHED).split("\n") == ["[]", "['open']"]
