"""Makes the beginning of a renderer of one's own: an installable package with a passing test."""

import ast
import importlib.machinery
import importlib.metadata
import importlib.util
import keyword
import re
import sys
from collections.abc import Container, Iterator, Mapping
from pathlib import Path

from stagedoor.errors import ConfigurationError

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_MAX_NAME = 64
_NO_ENTRY_POINT = "ticket-png"
"""A renderer that ships and that only those have who name its module."""


def new_renderer(name: str, *, parent: Path = Path(), taken: Container[str] = ()) -> Path:
    """Write a package for a renderer called *name* into a new folder of that name, and return the folder.

    Args:
        name: lower-case letters, digits and single dashes, such as ``house-ticket``; as a module, a
            class and a package it is new.
        parent: where the folder is made.
        taken: names of renderers that are there already.

    Raises:
        ConfigurationError: the name is not allowed or taken, or the folder is there already or cannot be made.
    """
    wrong = _problem_with(name, taken)
    if wrong is not None:
        raise ConfigurationError(f"a renderer cannot be called {name!r}: {wrong}")
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


def _problem_with(name: str, taken: Container[str]) -> str | None:
    """Say why the package could not be called *name*, or None: its test would fail, or something else would break."""
    if not _NAME.fullmatch(name) or len(name) > _MAX_NAME:
        return f"use up to {_MAX_NAME} lower-case letters, digits and single dashes, and begin with a letter"
    if name in taken or name == _NO_ENTRY_POINT:
        return "there is a renderer of that name already, and names are unique"
    module, made = _module_of(name), _class_of(name)
    for word in (module, made):
        if keyword.iskeyword(word):
            return f"{word} is a word of Python, which nothing can be called"
    if made in _names_in_skeleton() or module == "tests":
        return "what the package is made of has that name already"
    if module in {*sys.stdlib_module_names, "test"}:
        return f"{module} is a module of Python's standard library, which it would hide"
    if _is_importable(module):
        return f"a module {module} can be imported here already, and one would hide the other"
    if _is_distribution(name):
        return "a package of that name is installed here, and would be replaced"
    return None


def _names_in_skeleton() -> Iterator[str]:
    """Yield the names that the files of the package import or define, but for the class."""
    for text in (_MODULE, _TEST):
        for node in ast.walk(ast.parse(_filled(text, {"@name@": "_", "@module@": "_", "@class@": "_"}))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield from (alias.asname or alias.name for alias in node.names)
            elif isinstance(node, ast.Name | ast.FunctionDef):
                yield node.id if isinstance(node, ast.Name) else node.name


def _is_importable(module: str) -> bool:
    """Return whether *module* can be imported; a mere folder counts for nothing, for a package goes before it."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return True  # something of that name is there, and does not say what it is
    return spec is not None and not isinstance(spec.loader, importlib.machinery.NamespaceLoader | None)


def _is_distribution(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _module_of(name: str) -> str:
    return name.replace("-", "_")


def _class_of(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("-"))


def skeleton_of(name: str) -> Mapping[str, str]:
    """Return the files of the package, by their paths."""
    words = {"@name@": name, "@module@": _module_of(name), "@class@": _class_of(name)}
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
# PDFium reads back what is drawn, to see that nothing that is typed acts as markup.
test = ["pytest>=9.0", "pypdfium2>=5.0"]

# This is how Stagedoor finds it: the name on the left is the one that handlers
# and the setting `ticket_renderer` use.
[project.entry-points."stagedoor.renderers"]
@name@ = "@module@:@class@"

[tool.hatch.build.targets.wheel]
packages = ["@module@"]

[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["tests"]
"""

_README = """\
# @name@

A renderer for Stagedoor.

    pip install -e '.[test]'
    python -m pytest                    # the conformance suite
    python -m stagedoor renderers       # it is listed, and comes ready
    STAGEDOOR_TICKET_RENDERER=@name@ python -m stagedoor
"""

_MODULE = '''\
"""A renderer for Stagedoor: one page with a name and a code, to begin with."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from stagedoor.errors import InvalidRequest
from stagedoor.rendering.api import Check, Position, RenderRequest
from stagedoor_renderers.kit import text
from stagedoor_renderers.kit.pen import Color
from stagedoor_renderers.kit.qr import qr_code
from stagedoor_renderers.kit.sheet import MM, Sheet
from stagedoor_renderers.limits import checked
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
        order = checked(request)  # a thread cannot be stopped from outside: what is far too much is refused
        stock = load_stock()
        positions = _positions(request)
        sheet = Sheet(title=_drawable(order.event.name, stock).text, language=request.locale)
        for position in positions:
            check()  # raises when nobody wants the result any more
            sheet.begin_page(width=WIDTH, height=HEIGHT)
            _line(sheet, stock, order.event.name, size=20, y=85 * MM)
            _line(sheet, stock, position.holder, size=12, y=72 * MM)
            sheet.qr(98 * MM, 20 * MM, 40 * MM, code=qr_code(position.token, side_mm=40))
        return sheet.finish()

    def notes(self, request: RenderRequest) -> tuple[str, ...]:
        """Say of which fields something could not be drawn; `missing_glyphs=refuse` refuses such documents."""
        return tuple(dict.fromkeys(_notes(request, load_stock())))


def _positions(request: RenderRequest) -> tuple[Position, ...]:
    """Return the position that is asked for, or all of the order that are placed."""
    positions = (request.position,) if request.position else request.order.placed_positions
    if not positions:
        raise InvalidRequest("order.positions: none is placed")
    return positions


def _notes(request: RenderRequest, stock: Stock) -> Iterator[str]:
    """Name every field that is shown with a mark in it, and do not quote it: notes end in logs."""
    shown = [("event.name", request.order.event.name)]
    shown += [("position.holder", position.holder) for position in _positions(request)]
    for field, words in shown:
        missing = _drawable(words, stock).missing
        if missing:
            yield f"{field}: {len(missing)} replaced by a mark, for no font here draws them"


def _drawable(words: str, stock: Stock) -> text.Drawable:
    """Return *words* as they can be drawn: buyers type anything, in any script."""
    return text.drawable(text.one_line(words), stock.faces.common)


def _line(sheet: Sheet, stock: Stock, words: str, *, size: float, y: float) -> None:
    """Show one line, smaller if it is too long."""
    block = stock.setter.fit("bold", _drawable(words, stock).text, size=size, floor=6, width=80 * MM)
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
