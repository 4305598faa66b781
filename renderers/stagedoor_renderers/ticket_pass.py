"""`ticket-pkpass`: tickets for the wallet of a telephone, in Apple's format.

A pass is a zip archive of `pass.json`, icons, a manifest with their hashes and a
signature of the manifest. Without a certificate the bundle is made unsigned,
which is enough for tests and for nothing else. All but the signature is the same
bytes every time; a signature holds the time at which it was made.
"""

import datetime as dt
import functools
import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import pkcs7
from PIL import Image, ImageDraw

from stagedoor.errors import ConfigurationError, InvalidRequest
from stagedoor.rendering.api import Check, Position, RenderRequest
from stagedoor_renderers import probe
from stagedoor_renderers.fields import Content
from stagedoor_renderers.stock import Stock, load_stock
from stagedoor_renderers.telling import Sign, plain_token, told

_ZIP_DATE = (1980, 1, 1, 0, 0, 0)
"""The earliest that a zip archive knows: a pass has no date of its own."""

_INK, _PAPER, _ACCENT = (27, 26, 29), (247, 242, 234), (164, 22, 26)
_ICONS = {"icon.png": 29, "icon@2x.png": 58, "icon@3x.png": 87, "logo.png": 50, "logo@2x.png": 100}


@attrs.frozen(kw_only=True)
class Certificate:
    """What a pass is signed with: the shop's pass certificate, its key, and Apple's intermediate certificate."""

    certificate: x509.Certificate = attrs.field(repr=False)
    key: RSAPrivateKey = attrs.field(repr=False)
    intermediate: x509.Certificate = attrs.field(repr=False)

    @classmethod
    def load(cls, *, certificate: Path, key: Path, intermediate: Path) -> "Certificate":
        """Return the certificate in three PEM files.

        Raises:
            ConfigurationError: one of them cannot be read or is of another kind; names it.
        """
        found = _loaded(key, lambda data: serialization.load_pem_private_key(data, password=None))
        if not isinstance(found, RSAPrivateKey):
            raise ConfigurationError(f"{key} holds a key of another kind; passes are signed with RSA")
        return cls(
            certificate=_loaded(certificate, x509.load_pem_x509_certificate),
            key=found,
            intermediate=_loaded(intermediate, x509.load_pem_x509_certificate),
        )

    def signature(self, manifest: bytes) -> bytes:
        """Return a detached signature of *manifest*, with the time in it that Apple asks for."""
        builder = pkcs7.PKCS7SignatureBuilder().set_data(manifest)
        builder = builder.add_signer(self.certificate, self.key, hashes.SHA256()).add_certificate(self.intermediate)
        options = [pkcs7.PKCS7Options.DetachedSignature, pkcs7.PKCS7Options.Binary]
        return builder.sign(serialization.Encoding.DER, options)


def _loaded(file: Path, read: Any) -> Any:
    try:
        return read(file.read_bytes())
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(f"{file} cannot be used for passes: {error}") from error


@attrs.define(eq=False)
class TicketPass:
    """Makes the pass of one position.

    Args:
        organization: the shop's name, as the pass shows it.
        pass_type: the pass type identifier that the certificate is for.
        team: the team identifier of the certificate.
        certificate: signs passes; None leaves them unsigned, for tests.
        sign: makes what the code says of a position's token.
        name: what handlers and settings call it.
    """

    organization: str = "Stagedoor"
    pass_type: str = "pass.stagedoor.ticket"  # noqa: S105 - an identifier, as Apple calls it
    team: str = "STAGEDOOR0"
    certificate: Certificate | None = None
    sign: Sign = plain_token
    name: str = "ticket-pkpass"
    version: str = attrs.field(default="1", init=False)
    content_type: str = attrs.field(default="application/vnd.apple.pkpass", init=False)
    suffix: str = attrs.field(default=".pkpass", init=False)
    _stock: Stock | None = attrs.field(default=None, init=False, repr=False)

    def fingerprint(self) -> str:
        """Return a hash of code, words, library versions, and whom the pass names."""
        signed = self.certificate.certificate.fingerprint(hashes.SHA256()).hex() if self.certificate else "unsigned"
        code = self.sign(probe.order(), probe.order().positions[0])
        whom = json.dumps([self.organization, self.pass_type, self.team, signed, code])
        return hashlib.sha256(f"{self._loaded().fingerprint} {whom}".encode()).hexdigest()

    def warm_up(self) -> None:
        """Load words and formats, draw the icons, and make one pass."""
        self._stock = load_stock()
        order = probe.order()
        self.render(RenderRequest(order=order, position=order.positions[0], locale="de-DE"), probe.no_check)

    def render(self, request: RenderRequest, check: Check) -> bytes:
        """Return the pass.

        Raises:
            InvalidRequest: no position is asked for, or the order cannot be told; names the field.
        """
        if request.position is None:
            raise InvalidRequest("position: a pass is for one position; ask for each of them")
        check()
        ((position, content),) = told(request, self._loaded().values, sign=self.sign).tickets
        files = {"pass.json": self._json(request, position, content), **_icons()}
        hashed = {name: hashlib.sha1(data, usedforsecurity=False).hexdigest() for name, data in sorted(files.items())}
        manifest = json.dumps(hashed, indent=1).encode()
        files["manifest.json"] = manifest
        if self.certificate is not None:
            files["signature"] = self.certificate.signature(manifest)
        return _zipped(files)

    def _json(self, request: RenderRequest, position: Position, content: Content) -> bytes:
        event = request.order.event
        data = {
            "formatVersion": 1,
            "passTypeIdentifier": self.pass_type,
            "teamIdentifier": self.team,
            "organizationName": self.organization,
            # One pass for one position for ever: a changed one replaces it in the wallet.
            "serialNumber": f"{request.order.order_id}-{position.id}",
            "description": f"{content['event']}, {content['when']}",
            "logoText": self.organization,
            "foregroundColor": _rgb(_INK),
            "backgroundColor": _rgb(_PAPER),
            "labelColor": _rgb(_ACCENT),
            "relevantDate": event.starts_at.astimezone(dt.UTC).isoformat(timespec="minutes"),
            "barcodes": [
                {
                    "format": "PKBarcodeFormatQR",
                    "message": content["token"],
                    "messageEncoding": "iso-8859-1",
                    "altText": content["short_code"],
                }
            ],
            "eventTicket": _groups(content),
        }
        if position.status != "placed" or request.order.status != "placed":
            data["voided"] = True
        return json.dumps(data, ensure_ascii=False, indent=1, sort_keys=True).encode("utf-8", "replace")

    def _loaded(self) -> Stock:
        return self._stock or load_stock()


def _groups(content: Content) -> Mapping[str, list[dict[str, str]]]:
    def field(name: str, label: str = "") -> list[dict[str, str]]:
        value = content[name]
        return [{"key": name, "value": value, **({"label": content[label]} if label else {})}] if value else []

    seat = (
        field("seat_zone", "label.zone") + field("seat_row", "label.row") + field("seat_number", "label.seat")
    ) or field("general_admission", "label.seat")
    return {
        "headerFields": field("short_date", "label.date"),
        "primaryFields": field("event"),
        "secondaryFields": (
            field("start", "label.start") + field("doors", "label.doors") + field("venue", "label.venue")
        ),
        "auxiliaryFields": seat + field("holder", "label.holder"),
        "backFields": (
            field("sub_event")
            + field("ticket_of")
            + field("category", "label.category")
            + field("date", "label.date")
            # As the layouts have it: the offset, under the name of the zone.
            + field("offset", "zone_name")
            + field("price", "label.price")
            + field("addons", "label.addons")
            + field("addon_to", "label.addon")
            + field("order_code", "label.order")
            + field("terms", "label.terms")
        ),
    }


def _rgb(color: tuple[int, int, int]) -> str:
    return f"rgb({color[0]}, {color[1]}, {color[2]})"


@functools.cache  # a pure function without arguments: the icons that ship
def _icons() -> Mapping[str, bytes]:
    return {name: _icon(size) for name, size in _ICONS.items()}


def _icon(size: int) -> bytes:
    """Return a small ticket: paper on the accent colour, with two notches."""
    large = size * 4
    image = Image.new("RGB", (large, large), _ACCENT)
    draw = ImageDraw.Draw(image)
    left, top, right, bottom = large // 6, large // 3, large - large // 6, large - large // 3
    draw.rectangle((left, top, right, bottom), fill=_PAPER)
    notch = large // 14
    middle = left + (right - left) * 2 // 3
    for y in (top, bottom):
        draw.ellipse((middle - notch, y - notch, middle + notch, y + notch), fill=_ACCENT)
    buffer = io.BytesIO()
    image.resize((size, size), Image.Resampling.LANCZOS).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _zipped(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _ZIP_DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            entry.create_system = 3  # the same on every system
            archive.writestr(entry, data)
    return buffer.getvalue()
