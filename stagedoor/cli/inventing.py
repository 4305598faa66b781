"""Invented data of the same shape: what a fixture may carry of real orders.

Letters become other letters of the same script and case, digits other digits;
spaces, punctuation and combining marks stay where they are. So a text keeps
what breaks layouts and parsers, its length, its script, its odd characters, and
loses what it says. The same text becomes the same invention within one
recording, another text another one, and all of them others in the next: the key
is drawn anew and thrown away.
"""

import functools
import hashlib
import unicodedata
from collections.abc import Iterable, Sequence

import attrs

_BLOCK = 64
"""Characters that are taken for neighbours: within it scripts lie together."""
_ASCII = 0x7F
_DIGITS = "0123456789"
_CASES = ("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DRAWS = 1000
"""Of 26 rows of seats the last finds the one letter that is left with all but e^-39 of certainty."""


@attrs.define
class _Drawn:
    """What was invented for what; nothing is invented twice, and nothing that is reserved."""

    taken: set[str]
    made: dict[str, str] = attrs.Factory(dict)


class Inventor:
    """Invents; one for each recording.

    Args:
        key: secret bytes; whoever has them and guesses a text can confirm the guess.
        names: of fields that mean something, which no other name may become.
        kinds: that mean something, as *names*.
    """

    def __init__(self, key: bytes, *, names: Iterable[str] = (), kinds: Iterable[str] = ()) -> None:
        self._key = key
        self._texts = _Drawn(taken=set())
        self._names = _Drawn(taken=set(names))
        self._kinds = _Drawn(taken=set(kinds))

    def text(self, text: str) -> str:
        """Return a text of the same shape."""
        return self._drawn(text, self._texts)

    def value(self, value: bytes) -> bytes:
        """Return bytes of the same shape; what was no UTF-8 still is none."""
        return self._bytes(value, self._texts)

    def name(self, name: bytes) -> bytes:
        """Return the name of a field, invented like a value; two names stay two names."""
        return self._bytes(name, self._names)

    def kind(self, kind: bytes) -> bytes:
        """Return the kind of an entry, invented like a value; it becomes none that means something."""
        return self._bytes(kind, self._kinds)

    def _bytes(self, value: bytes, among: _Drawn) -> bytes:
        try:
            return self._drawn(value.decode(), among).encode()
        except UnicodeError:
            # Bytes of another encoding say as much as letters do.
            made = self._drawn(value.decode("ascii", "surrogateescape"), among).encode("ascii", "surrogateescape")
            return bytes(0xFF if byte > _ASCII else byte for byte in made)

    def _drawn(self, text: str, among: _Drawn) -> str:
        if text not in among.made:
            among.made[text] = made = self._draw(text, among.taken)
            among.taken.add(made)
        return among.made[text]

    def _draw(self, text: str, taken: set[str]) -> str:
        """Draw until it is another text, and one that is not taken yet."""
        choices = _choices(text)
        if all(len(choice) == 1 for choice in choices):
            return text
        made = text
        for draw in range(_DRAWS):
            made = self._once(text, choices, draw)
            if made != text and made not in taken:
                return made
        # It is the last of its shape, and the text itself is what is left; or nothing is left.
        return made if text in taken else text

    def _once(self, text: str, choices: Sequence[str], draw: int) -> str:
        """Choose a character for each place."""
        # SHA-3 may be keyed with what stands in front, and gives as many bytes as there are places.
        seed = self._key + draw.to_bytes(4, "big") + text.encode("utf-8", "surrogatepass")
        stream = hashlib.shake_256(seed).digest(len(text))
        return "".join(choice[number % len(choice)] for choice, number in zip(choices, stream, strict=True))


def _choices(text: str) -> list[str]:
    """Return for each place the characters that may stand there."""
    # A number keeps what its first digit says: 0170 still is none that an id can be, 170 still is one.
    return [_neighbours(char, is_first=before not in _DIGITS) for before, char in zip(f" {text}", text, strict=False)]


@functools.lru_cache(maxsize=4096)
def _neighbours(char: str, *, is_first: bool) -> str:
    """Return the characters that may stand for this one; itself alone for what keeps its place."""
    if char in _DIGITS:
        return _DIGITS if not is_first else "0" if char == "0" else _DIGITS[1:]
    if char.isascii():
        return next((letters for letters in _CASES if char in letters), char)
    script, category = _script(char), unicodedata.category(char)
    if not (char.isalnum() or _is_writing(unicodedata.name(char, ""), category)):
        return char
    start = ord(char) // _BLOCK * _BLOCK
    around = map(chr, range(start, start + _BLOCK))
    return "".join(one for one in around if unicodedata.category(one) == category and _script(one) == script)


def _is_writing(name: str, category: str) -> bool:
    """Return whether a symbol is one to write with: letters in circles and squares, of flags, of Braille, of tags."""
    return category in {"So", "Cf"} and (" LETTER " in name or name.startswith("BRAILLE PATTERN"))


def _script(char: str) -> str:
    return unicodedata.name(char, "").partition(" ")[0]
