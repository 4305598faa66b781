"""Makes the beginning of a renderer of one's own: an installable package with a passing test."""

import re
from collections.abc import Mapping
from pathlib import Path

from stagedoor.errors import ConfigurationError

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_MAX_NAME = 64


def new_renderer(name: str, *, parent: Path = Path()) -> Path:
    """Write a package for a renderer called *name* into a new folder of that name, and return the folder.

    Args:
        name: lower-case letters, digits and single dashes, such as ``house-ticket``.
        parent: where the folder is made.

    Raises:
        ConfigurationError: the name is not allowed, or the folder is there already or cannot be made.
    """
    if not _NAME.fullmatch(name) or len(name) > _MAX_NAME:
        raise ConfigurationError(
            f"a renderer cannot be called {name!r}: use lower-case letters, digits and single dashes, "
            "and begin with a letter"
        )
    folder = parent / name
    if folder.exists():
        raise ConfigurationError(f"{folder} is there already; choose another name, or remove it")
    try:
        for path, text in skeleton_of(name).items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be made: {error.strerror}") from None
    return folder


def skeleton_of(name: str) -> Mapping[str, str]:
    """Return the files of the package, by their paths."""
    module = name.replace("-", "_")
    words = {
        "@name@": name,
        "@module@": module,
        "@class@": "".join(part.capitalize() for part in name.split("-")),
    }
    files = {
        "pyproject.toml": _PROJECT,
        "README.md": _README,
        "@module@/__init__.py": _MODULE,
        "@module@/py.typed": "",
        "tests/test_@module@.py": _TEST,
    }
    return {_filled(path, words): _filled(text, words) for path, text in files.items()}


def _filled(text: str, words: Mapping[str, str]) -> str:
    for placeholder, word in words.items():
        text = text.replace(placeholder, word)
    return text


_PROJECT = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "@name@"
version = "0.1.0"
description = "A renderer for Stagedoor."
requires-python = ">=3.13"
dependencies = ["stagedoor", "stagedoor-renderers"]

[project.optional-dependencies]
test = ["pytest>=9.0"]

# This is how Stagedoor finds it: the name on the left is the one that handlers
# and the setting `ticket_renderer` use.
[project.entry-points."stagedoor.renderers"]
@name@ = "@module@:@class@"

[tool.hatch.build.targets.wheel]
packages = ["@module@"]
"""

_README = """\
# @name@

A renderer for Stagedoor.

    pip install -e '.[test]'
    pytest                              # the conformance suite
    python -m stagedoor renderers       # it is listed
    STAGEDOOR_TICKET_RENDERER=@name@ python -m stagedoor
"""

_MODULE = '''\
"""A renderer for Stagedoor: one page with a name and a code, to begin with."""

import hashlib
from pathlib import Path

from stagedoor.errors import InvalidRequest
from stagedoor.rendering.api import Check, RenderRequest
from stagedoor_renderers.kit import text
from stagedoor_renderers.kit.pen import Color
from stagedoor_renderers.kit.qr import qr_code
from stagedoor_renderers.kit.sheet import MM, Sheet
from stagedoor_renderers.stock import Stock, load_stock

INK = Color.of("#1b1a1d")
WIDTH, HEIGHT = 148 * MM, 105 * MM


class @class@:
    """Draws one page for each position."""

    name = "@name@"
    version = "1"  # raise it whenever the output may change
    content_type = "application/pdf"
    suffix = ".pdf"

    def fingerprint(self) -> str:
        """Return a hash of all that it draws with: this file, and the fonts and libraries of the kit."""
        own = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
        return f"{own} {load_stock().fingerprint}"

    def warm_up(self) -> None:
        """Load the fonts before eight threads ask for them."""
        load_stock()

    def render(self, request: RenderRequest, check: Check) -> bytes:
        """Return the PDF; called in eight threads at once, so keep nothing on self."""
        positions = (request.position,) if request.position else request.order.placed_positions
        if not positions:
            raise InvalidRequest("order.positions: none is placed")
        stock = load_stock()
        sheet = Sheet(title=_drawable(request.order.event.name, stock), language=request.locale)
        for position in positions:
            check()  # raises when nobody wants the result any more
            sheet.begin_page(width=WIDTH, height=HEIGHT)
            _line(sheet, stock, request.order.event.name, size=20, y=85 * MM)
            _line(sheet, stock, position.holder, size=12, y=72 * MM)
            sheet.qr(98 * MM, 20 * MM, 40 * MM, code=qr_code(position.token, side_mm=40))
        return sheet.finish()


def _drawable(words: str, stock: Stock) -> str:
    """Return *words* as they can be drawn: buyers type anything, in any script."""
    return text.drawable(text.one_line(words), stock.faces.common).text


def _line(sheet: Sheet, stock: Stock, words: str, *, size: float, y: float) -> None:
    """Show one line, smaller if it is too long."""
    block = stock.setter.fit("bold", _drawable(words, stock), size=size, floor=6, width=80 * MM)
    sheet.text(12 * MM, y, stock.setter.show("bold", block.lines[0], block.size), color=INK)
'''

_TEST = '''\
"""@name@ keeps the contract of renderers."""

import pytest
from @module@ import @class@
from stagedoor.testing.renderers import CHECKS, Subject


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check):
    check(Subject(@class@))
'''
