"""Passes for the wallet: the words of the ticket, the manifest, and a signature that is checked."""

import datetime as dt
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import attrs
import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from stagedoor.errors import ConfigurationError, InvalidRequest
from stagedoor.order import Seat
from stagedoor_renderers.ticket_pass import Certificate, TicketPass
from tests.rendering.orders import no_check, position, request, rich, token, whole


def elements(data: bytes) -> list[tuple[int, bytes, bytes]]:
    """The DER elements that stand one after the other in *data*: tag, content, and all of it."""
    found: list[tuple[int, bytes, bytes]] = []
    at = 0
    while at < len(data):
        start, tag, length = at, data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[at : at + size])
            at += size
        found.append((tag, data[at : at + length], data[start : at + length]))
        at += length
    return found


MESSAGE_DIGEST = bytes.fromhex("06092a864886f70d010904")
SIGNING_TIME = bytes.fromhex("06092a864886f70d010905")


def verify_detached(signature: bytes, signed: bytes, by: x509.Certificate) -> list[x509.Certificate]:
    """Check a detached CMS signature (RFC 5652) of *signed*, with its signing time; return the certificates in it."""
    ((_, content_info, _),) = elements(signature)
    (_, kind, _), (_, wrapped, _) = elements(content_info)
    assert kind.hex() == "2a864886f70d010702", "signed data"
    ((_, signed_data, _),) = elements(wrapped)
    _, _, (_, encapsulated, _), (_, certificates, _), (_, signers, _) = elements(signed_data)
    assert len(elements(encapsulated)) == 1, "detached: the content is not in it"
    ((_, signer, _),) = elements(signers)
    _, (_, issuer_and_serial, _), _, (tag, attributes, whole_set), _, (_, value, _) = elements(signer)
    assert int.from_bytes(elements(issuer_and_serial)[1][1]) == by.serial_number
    assert tag == 0xA0
    found = {elements(one)[0][2]: elements(elements(one)[1][1])[0][1] for _, one, _ in elements(attributes)}
    assert found[MESSAGE_DIGEST] == hashlib.sha256(signed).digest()
    assert SIGNING_TIME in found
    public = by.public_key()
    assert isinstance(public, rsa.RSAPublicKey)
    # They are signed as a SET, and written with another tag.
    public.verify(value, b"\x31" + whole_set[1:], padding.PKCS1v15(), hashes.SHA256())
    return [x509.load_der_x509_certificate(one) for _, _, one in elements(certificates)]


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


def test_a_field_of_the_pass_has_the_label_of_what_it_is() -> None:
    made = pass_of(rich(locale="en-GB"))
    labels = {field["key"]: field.get("label") for group in made["eventTicket"].values() for field in group}
    assert labels == {
        "short_date": "Date",
        "event": None,
        "start": "Start",
        "doors": "Doors",
        "venue": "Venue",
        "seat_zone": "Block",
        "seat_row": "Row",
        "seat_number": "Seat",
        "holder": "Name",
        "sub_event": None,
        "ticket_of": None,
        "category": "Ticket",
        "date": "Date",
        "offset": "Europe/Berlin",
        "price": "Price",
        "addons": "Includes",
        "order_code": "Order",
        "terms": "Terms",
    }


def test_an_addon_has_its_parents_seat_and_holder_in_the_pass_too() -> None:
    wanted = request(position(1), position(2, holder="", seat=None, addon_to=1))
    addon = attrs.evolve(wanted, position=wanted.order.positions[1])
    fields = {field["key"]: field["value"] for group in pass_of(addon)["eventTicket"].values() for field in group}
    assert (fields["seat_row"], fields["seat_number"], fields["holder"]) == ("C", "8", "Zoë Šimková")


def test_a_pass_for_a_refunded_position_says_that_it_is_void() -> None:
    assert "voided" not in pass_of(request())
    assert pass_of(request(status="refunded"))["voided"] is True


def test_the_manifest_names_every_file_with_its_hash() -> None:
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
    """A certificate and the one that issued it, written to files and read back."""
    authority, key = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
    folder = tmp_path_factory.mktemp("certificate")
    pem = serialization.Encoding.PEM
    for file, serial, owner in (("authority.pem", 7, authority), ("pass.pem", 8, key)):
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, file)]))
            .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority.pem")]))
            .public_key(owner.public_key())
            .serial_number(serial)
            .not_valid_before(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
            .not_valid_after(dt.datetime(2036, 1, 1, tzinfo=dt.UTC))
            .sign(authority, hashes.SHA256())
        )
        (folder / file).write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return Certificate.load(
        certificate=folder / "pass.pem", key=folder / "key.pem", intermediate=folder / "authority.pem"
    )


def test_the_signature_is_the_certificates_own_of_the_manifest(certificate: Certificate) -> None:
    archive = opened(TicketPass(certificate=certificate).render(request(), no_check))
    signature, manifest = archive.read("signature"), archive.read("manifest.json")
    carried = verify_detached(signature, manifest, certificate.certificate)
    assert {one.serial_number for one in carried} == {7, 8}


def test_no_other_manifest_and_no_other_certificate_fits_the_signature(certificate: Certificate) -> None:
    """What the check of the test above is worth."""
    archive = opened(TicketPass(certificate=certificate).render(request(), no_check))
    signature, manifest = archive.read("signature"), archive.read("manifest.json")
    with pytest.raises(AssertionError):
        verify_detached(signature, manifest + b" ", certificate.certificate)
    with pytest.raises(AssertionError):
        verify_detached(signature, manifest, certificate.intermediate)
    with pytest.raises(InvalidSignature):
        verify_detached(signature[:-1] + bytes([signature[-1] ^ 1]), manifest, certificate.certificate)


def test_a_signed_pass_differs_from_the_unsigned_one_in_its_signature_only(certificate: Certificate) -> None:
    signed = opened(TicketPass(certificate=certificate).render(request(), no_check))
    unsigned = opened(TicketPass().render(request(), no_check))
    assert set(signed.namelist()) - set(unsigned.namelist()) == {"signature"}
    for name in unsigned.namelist():
        assert signed.read(name) == unsigned.read(name)


def test_who_signs_is_part_of_the_fingerprint(certificate: Certificate) -> None:
    assert TicketPass(certificate=certificate).fingerprint() != TicketPass().fingerprint()
    assert TicketPass(team="OTHER").fingerprint() != TicketPass().fingerprint()


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("no key", encoding="ascii")
    with pytest.raises(ConfigurationError, match=r"key\.pem cannot be used for passes"):
        Certificate.load(certificate=tmp_path / "a", key=tmp_path / "key.pem", intermediate=tmp_path / "b")
