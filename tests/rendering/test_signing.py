"""Signed tokens: genuine ones are known without a connection, all others are refused with the reason."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from stagedoor.errors import ConfigurationError, InvalidRequest
from stagedoor_renderers.kit.qr import needed_mm
from stagedoor_renderers.signing import (
    InvalidToken,
    Signer,
    load_public_key,
    load_public_keys,
    load_signer,
    new_key,
    private_pem,
    public_pem,
    token_in,
    verify,
)
from stagedoor_renderers.ticket_pdf import TicketPdf
from tests.rendering.orders import no_check, order, position, request, token
from tests.rendering.reading import codes_of, lines_of

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEYS = {1: KEY.public_key()}
SIGNER = Signer(private_key=KEY)
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"


def signed(number: int = 1) -> str:
    return SIGNER(order(), position(number))


def test_a_genuine_token_says_whose_it_is() -> None:
    found = verify(signed(7), KEYS)
    assert (found.order_id, found.position_id, found.token, found.key) == (4471, 7, token(7), 1)


@given(st.text(alphabet=ALPHABET, min_size=26, max_size=26))
def test_every_token_comes_back_as_it_was(value: str) -> None:
    assert verify(SIGNER(order(), position(token=value)), KEYS).token == value


def test_the_token_in_a_code_is_read_without_any_key() -> None:
    assert token_in(f"{Signer(private_key=new_key(), key=9)(order(), position(7)).lower()}\n") == token(7)
    with pytest.raises(InvalidToken, match="no signed token"):
        token_in(token(7))


def test_signing_is_deterministic() -> None:
    assert signed() == signed()


def test_the_code_is_about_25_mm_wide() -> None:
    assert needed_mm(signed()) == 22.5


def test_no_character_of_it_can_be_changed() -> None:
    code = signed()
    for place in range(2, len(code)):
        for letter in ALPHABET[::5]:
            forged = code[:place] + letter + code[place + 1 :]
            if forged != code:
                with pytest.raises(InvalidToken):
                    verify(forged, KEYS)


def test_another_shops_signature_is_refused() -> None:
    stranger = Signer(private_key=new_key())
    with pytest.raises(InvalidToken, match="key 1 did not sign this: it is forged or damaged"):
        verify(stranger(order(), position()), KEYS)


def test_a_key_that_a_door_does_not_know_is_named() -> None:
    other = Signer(private_key=KEY, key=9)
    with pytest.raises(InvalidToken, match=r"key 9 signed it, which is not known here \(known: 1\)"):
        verify(other(order(), position()), KEYS)


@pytest.mark.parametrize("code", ["", token(1), "S1", "S1" + "A" * 150, "S1" + "A" * 152, "S1" + "1" * 151, "S1Ä" * 50])
def test_what_is_no_signed_token_is_refused_as_such(code: str) -> None:
    with pytest.raises(InvalidToken, match="no signed token"):
        verify(code, KEYS)


def test_a_scanner_that_types_small_letters_is_understood() -> None:
    assert verify(f" {signed().lower()}\n", KEYS).token == token(1)


def test_only_tokens_of_the_orders_form_can_be_signed() -> None:
    with pytest.raises(InvalidRequest, match=r"position\.token"):
        SIGNER(order(), position(token="short"))


def test_keys_go_through_files(tmp_path: Path) -> None:
    (tmp_path / "private.pem").write_bytes(private_pem(KEY))
    (tmp_path / "public.pem").write_bytes(public_pem(KEY.public_key()))
    signer = load_signer(tmp_path / "private.pem")
    assert signer(order(), position()) == signed()
    assert verify(signed(), {1: load_public_key(tmp_path / "public.pem")}).token == token(1)


def test_a_door_may_know_several_keys_by_their_numbers(tmp_path: Path) -> None:
    file = tmp_path / "public.pem"
    file.write_bytes(public_pem(KEY.public_key()))
    assert set(load_public_keys([str(file), f"7={file}"])) == {1, 7}
    for wrong, said in (([f"x={file}"], "number from 0 to 255"), ([str(file), f"1={file}"], "key 1 is there twice")):
        with pytest.raises(ConfigurationError, match=said):
            load_public_keys(wrong)


def test_files_that_are_no_keys_are_named(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    with pytest.raises(ConfigurationError, match=r"key\.pem cannot be read"):
        load_signer(file)
    file.write_text("no key", encoding="ascii")
    with pytest.raises(ConfigurationError, match="holds no private key"):
        load_signer(file)
    with pytest.raises(ConfigurationError, match="holds no public key"):
        load_public_key(file)
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = serialization.Encoding.PEM
    file.write_bytes(other.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    with pytest.raises(ConfigurationError, match="another kind"):
        load_signer(file)


# -- on a ticket --------------------------------------------------------------


@pytest.fixture(scope="module")
def signing_ticket() -> TicketPdf:
    renderer = TicketPdf(sign=SIGNER, name="signed-ticket", layout="a5")
    renderer.warm_up()
    return renderer


def test_the_ticket_shows_the_signed_token_and_the_short_code_of_the_plain_one(signing_ticket: TicketPdf) -> None:
    pdf = signing_ticket.render(request(), no_check)
    (code,) = codes_of(pdf)
    assert verify(code, KEYS).token == token(1)
    assert f"{token(1)[:4]}-{token(1)[4:8]}" in lines_of(pdf)


def test_signed_tickets_are_the_same_every_time(signing_ticket: TicketPdf) -> None:
    assert signing_ticket.render(request(), no_check) == signing_ticket.render(request(), no_check)


def test_a_layout_that_is_too_small_for_a_signature_says_so(signing_ticket: TicketPdf) -> None:
    with pytest.raises(
        InvalidRequest, match=r"wristband: box code has a side of 21 mm, position\.token needs 22\.5 mm"
    ):
        signing_ticket.render(request(layout="wristband"), no_check)


def test_another_key_is_another_fingerprint(signing_ticket: TicketPdf, ticket: TicketPdf) -> None:
    other = TicketPdf(sign=Signer(private_key=new_key()), layout="a5")
    assert len({other.fingerprint(), signing_ticket.fingerprint(), ticket.fingerprint()}) == 3


def test_a_default_layout_that_is_too_small_for_a_signature_is_refused_at_start() -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"wristband\.toml: box \d+ \(code\): side of 21 mm is too small; the code needs 22\.5 mm",
    ):
        TicketPdf(sign=SIGNER, layout="wristband").warm_up()
