"""The same ticket in other forms: text, HTML, a pass for the wallet, a picture."""

import datetime as dt
import html.parser
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from PIL import Image

from stagedoor.errors import ConfigurationError, InvalidRequest
from stagedoor.order import Seat
from stagedoor.testing import renderers as suite
from stagedoor.testing.renderers import Subject
from stagedoor_renderers.preview import preview
from stagedoor_renderers.ticket_pass import Certificate, TicketPass
from stagedoor_renderers.ticket_png import TicketPng
from stagedoor_renderers.ticket_text import TicketHtml, TicketText
from tests.rendering.orders import TOKEN, event, named, no_check, position, request, token, whole
from tests.rendering.reading import codes_in

FAST_CHECKS = [
    check
    for check in suite.CHECKS
    if check not in (suite.same_bytes_in_another_process, suite.same_bytes_in_eight_threads)
]


@pytest.mark.parametrize("make", [TicketText, TicketHtml])
@pytest.mark.parametrize("check", FAST_CHECKS, ids=lambda check: check.__name__)
def test_text_and_html_conform(check: suite.Check, make: Callable[[], Any]) -> None:
    check(Subject(make))


# -- text ---------------------------------------------------------------------


def text_of(wanted: Any) -> str:
    return TicketText().render(wanted, no_check).decode()


def test_the_text_says_what_the_ticket_says() -> None:
    text = text_of(request(position(seat=Seat(zone="B", row="C", number="8")), locale="de-DE"))
    for words in (
        "Die Zauberflöte",
        "Zoë Šimková",
        "Mittwoch, 1. Juli 2026",
        "20:00 (UTC+2, Europe/Berlin)",
        "Block B · Reihe C · Platz 8",
        "45,00\u00a0€",
        token(1),
    ):
        assert words in text


def test_an_emoji_stays_in_the_text() -> None:
    assert "Anna 🎉" in text_of(named("Anna 🎉"))


# -- HTML ---------------------------------------------------------------------


class Reader(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attributes]

    def handle_data(self, data: str) -> None:
        self.text += data


def read(wanted: Any) -> Reader:
    reader = Reader()
    reader.feed(TicketHtml().render(wanted, no_check).decode())
    return reader


def test_the_page_is_in_the_language_of_the_order() -> None:
    page = TicketHtml().render(attrs.evolve(named("Anna"), locale="ar-EG"), no_check).decode()
    assert '<html lang="ar-EG" dir="rtl">' in page


@pytest.mark.parametrize("words", ["<script>alert(1)</script>", "\"onload='x'", "<img src=x>", "AT&T", "&lt;b&gt;"])
def test_nothing_that_is_typed_acts_as_markup(words: str) -> None:
    quiet = read(
        request(position(holder="x", category="x"), event=event(name="x", venue="x", terms="x", sub_event="x"))
    )
    loud = read(
        request(
            position(holder=words, category=words), event=event(name=words, venue=words, terms=words, sub_event=words)
        )
    )
    assert loud.tags == quiet.tags
    assert loud.attributes == quiet.attributes
    assert loud.text.count(words) >= 5


def test_the_page_loads_nothing() -> None:
    page = TicketHtml().render(named("Anna"), no_check).decode()
    assert not {"script", "img", "link", "iframe", "a"} & set(read(named("Anna")).tags)
    assert "http" not in page.replace("http-equiv", "")


def test_the_code_of_the_page_is_the_tickets(ticket: Any) -> None:
    page = TicketHtml().render(request(position(token=TOKEN)), no_check).decode()
    assert 'aria-label="Code K7QF-2M3N"' in page
    assert page.count("M") > 100


# -- passes -------------------------------------------------------------------


def opened(data: bytes) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(data))


def pass_of(wanted: Any, **options: Any) -> Any:
    return json.loads(opened(TicketPass(**options).render(wanted, no_check)).read("pass.json"))


def test_a_pass_has_the_token_and_the_same_words() -> None:
    made = pass_of(request(position(seat=Seat(zone="B", row="C", number="8"))))
    assert made["barcodes"][0]["message"] == token(1)
    assert made["relevantDate"] == "2026-07-01T18:00+00:00"
    fields = {field["key"]: field["value"] for group in made["eventTicket"].values() for field in group}
    assert (fields["event"], fields["holder"], fields["seat_row"], fields["start"]) == (
        "Die Zauberflöte",
        "Zoë Šimková",
        "C",
        "20:00",
    )


def test_an_addon_has_its_parents_seat_and_holder_in_the_pass_too() -> None:
    wanted = request(position(1), position(2, holder="", seat=None, addon_to=1))
    addon = attrs.evolve(wanted, position=wanted.order.positions[1])
    fields = {field["key"]: field["value"] for group in pass_of(addon)["eventTicket"].values() for field in group}
    assert (fields["seat_row"], fields["seat_number"], fields["holder"]) == ("C", "8", "Zoë Šimková")


def test_a_pass_for_a_refunded_position_says_that_it_is_void() -> None:
    assert "voided" not in pass_of(request())
    assert pass_of(request(status="refunded"))["voided"] is True


def test_the_manifest_names_every_file_with_its_hash() -> None:
    import hashlib

    archive = opened(TicketPass().render(request(), no_check))
    manifest = json.loads(archive.read("manifest.json"))
    assert set(manifest) == set(archive.namelist()) - {"manifest.json"}
    for name, digest in manifest.items():
        assert hashlib.sha1(archive.read(name)).hexdigest() == digest


def test_an_unsigned_pass_is_the_same_every_time() -> None:
    assert TicketPass().render(request(), no_check) == TicketPass().render(request(), no_check)


def test_a_pass_for_a_whole_order_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="position: a pass is for one position"):
        TicketPass().render(whole(request()), no_check)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A certificate that signs itself, written to files and read back."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Pass Type ID: pass.test")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(dt.datetime(2036, 1, 1, tzinfo=dt.UTC))
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("certificate")
    pem = serialization.Encoding.PEM
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (folder / "pass.pem").write_bytes(made.public_bytes(pem))
    return Certificate.load(certificate=folder / "pass.pem", key=folder / "key.pem", intermediate=folder / "pass.pem")


def test_a_signed_pass_differs_from_the_unsigned_one_in_its_signature_only(certificate: Certificate) -> None:
    signed = opened(TicketPass(certificate=certificate).render(request(), no_check))
    unsigned = opened(TicketPass().render(request(), no_check))
    assert set(signed.namelist()) - set(unsigned.namelist()) == {"signature"}
    assert signed.read("signature")[:1] == b"0"
    for name in unsigned.namelist():
        assert signed.read(name) == unsigned.read(name)


def test_who_signs_is_part_of_the_fingerprint(certificate: Certificate) -> None:
    assert TicketPass(certificate=certificate).fingerprint() != TicketPass().fingerprint()
    assert TicketPass(team="OTHER").fingerprint() != TicketPass().fingerprint()


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("no key", encoding="ascii")
    with pytest.raises(ConfigurationError, match=r"key\.pem cannot be used for passes"):
        Certificate.load(certificate=tmp_path / "a", key=tmp_path / "key.pem", intermediate=tmp_path / "b")


# -- pictures and previews ----------------------------------------------------


def test_a_picture_shows_the_ticket_with_its_code() -> None:
    renderer = TicketPng()
    renderer.warm_up()
    image = Image.open(io.BytesIO(renderer.render(request(position(token=TOKEN)), no_check)))
    assert image.format == "PNG"
    assert codes_in(image.convert("L")) == [TOKEN]


def test_a_preview_needs_nothing_but_the_name_of_a_layout() -> None:
    shown = preview("wristband", dpi=72)
    assert shown.pdf.startswith(b"%PDF-")
    assert len(shown.pictures) == 3
    assert all(picture.startswith(b"\x89PNG") for picture in shown.pictures)
    assert shown.notes == ()


def test_a_preview_takes_the_path_of_a_layout(tmp_path: Path) -> None:
    from tests.rendering.test_layouts import GOOD

    (tmp_path / "own.toml").write_text(GOOD, encoding="utf-8")
    assert preview(str(tmp_path / "own.toml"), order=request().order, dpi=72).pdf
    (tmp_path / "own.toml").write_text(GOOD.replace("size = 12", "size = 0"), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"own\.toml: box 1"):
        preview(str(tmp_path / "own.toml"))


def test_a_preview_of_many_tickets_has_pictures_of_the_first_and_says_so() -> None:
    many = whole(request(*(position(n) for n in range(1, 23)))).order
    shown = preview("wristband", order=many, dpi=30)
    assert len(shown.pictures) == 20
    assert shown.lacks == ("there are pictures of the first 20 of 22 pages",)
