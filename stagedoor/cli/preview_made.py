"""What ``preview`` does: reads an order, has it drawn, and writes the files."""

import base64
import hashlib
import json
from pathlib import Path

import attrs
from rich.text import Text

from stagedoor.cli.engine import needs_engine
from stagedoor.cli.output import safe, show
from stagedoor.errors import ConfigurationError, InvalidOrder
from stagedoor.order import NewOrder, Order, Position
from stagedoor.orders import parse_line

with needs_engine("preview"):
    from stagedoor_renderers import preview as engine

_TOKEN_LENGTH = 26
_SOME_ID = 4471


def preview(layout: str, *, order_file: Path | None, folder: Path) -> None:
    """Write the files of a preview, and say where they are and what could not be drawn.

    Raises:
        ConfigurationError: the layout is wrong, or a file cannot be read or written.
        InvalidOrder: the order of the file will not do; names each field.
        InvalidRequest: the order cannot be drawn; names the field.
    """
    order = as_placed(_read(order_file)) if order_file else None
    made = engine.preview(layout, order=order)
    written = _written(made, folder, Path(layout).stem)
    lines = [safe(f"{path}") for path in written]
    lines += [Text("note: ", style="yellow") + safe(note) for note in (*made.notes, *made.lacks)]
    show(*lines)


def _read(file: Path) -> NewOrder:
    """Return the order of a file: one JSON object, or the first line that is not empty."""
    try:
        data = file.read_bytes().removeprefix(b"\xef\xbb\xbf").strip()
    except OSError as error:
        raise ConfigurationError(f"--order: {file} cannot be read: {error.strerror}") from None
    if not data:
        raise InvalidOrder(f"--order: {file} holds no order")
    try:
        json.loads(data)
    except ValueError:
        data = data.split(b"\n", 1)[0]  # of many lines; what is wrong with it is said below
    return parse_line(data)


def as_placed(new: NewOrder) -> Order:
    """Return *new* as if it had been placed, with made-up tokens that are the same each time."""
    return Order(
        order_id=new.order_id or _SOME_ID,
        version=1,
        status="placed",
        event=new.event,
        locale=new.locale,
        currency=new.currency,
        buyer=new.buyer,
        positions=tuple(
            Position(**attrs.asdict(each, recurse=False), token=_made_up_token(each.id), version=1)
            for each in new.positions
        ),
        receipt_number=new.receipt_number,
        taxes=new.taxes,
    )


def _made_up_token(position_id: int) -> str:
    digest = hashlib.sha256(f"a preview admits nobody {position_id}".encode()).digest()
    return base64.b32encode(digest).decode("ascii")[:_TOKEN_LENGTH]


def _written(made: "engine.Preview", folder: Path, name: str) -> list[Path]:
    several = len(made.pictures) > 1
    files = {folder / f"{name}.pdf": made.pdf}
    for number, picture in enumerate(made.pictures, start=1):
        files[folder / (f"{name}-{number}.png" if several else f"{name}.png")] = picture
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, data in files.items():
            path.write_bytes(data)
    except OSError as error:
        raise ConfigurationError(f"--folder: {folder} cannot be written to: {error.strerror}") from None
    return list(files)
