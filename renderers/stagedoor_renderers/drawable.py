"""The content of a ticket, prepared once for drawing."""

from collections.abc import Mapping, Sequence

import attrs

from stagedoor_renderers.kit import text
from stagedoor_renderers.kit.faces import Faces
from stagedoor_renderers.telling import clean

_NAMED_CODES = 8
"""How many missing characters a note names."""


@attrs.frozen(kw_only=True)
class Prepared:
    """Content of which every character can be drawn, and a note for every field where one could not."""

    fields: Mapping[str, str]
    notes: tuple[str, ...] = ()


def prepared(content: Mapping[str, str], faces: Faces) -> Prepared:
    """Return *content* cleaned, shaped, and with visible marks for what no font covers."""
    fields: dict[str, str] = {}
    notes: list[str] = []
    for name, value in clean(content).items():
        shown = text.drawable(value, faces.common)
        fields[name] = shown.text
        if shown.missing:
            notes.append(_note(name, shown.missing))
    return Prepared(fields=fields, notes=tuple(notes))


def _note(field: str, missing: Sequence[str]) -> str:
    # Of a joined form, the letter that was typed.
    codes = sorted({f"U+{ord(char):04X}" for chars in missing for char in text.spoken(chars)})
    more = " and more" if len(codes) > _NAMED_CODES else ""
    named = ", ".join(codes[:_NAMED_CODES])
    return f"{field}: {len(missing)} replaced by a mark, for no font here draws {named}{more}"
