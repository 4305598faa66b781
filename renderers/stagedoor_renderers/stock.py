"""What every renderer here draws with: fonts, languages, zones, layouts; loaded once per process."""

import functools
import hashlib
import importlib.metadata
import importlib.resources
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path

import attrs
from PIL import features

from stagedoor.errors import ConfigurationError
from stagedoor.rendering.api import Event
from stagedoor_renderers import probe
from stagedoor_renderers.boxes import Layout
from stagedoor_renderers.drawable import Prepared, prepared
from stagedoor_renderers.fields import event_content
from stagedoor_renderers.kit import text
from stagedoor_renderers.kit.desk import Typesetter
from stagedoor_renderers.kit.faces import Faces, load_faces
from stagedoor_renderers.kit.memory import Remembered
from stagedoor_renderers.layout import Finder, read_layout
from stagedoor_renderers.values import Language, Values, load_values

_LIBRARIES = ("arabic-reshaper", "babel", "pillow", "python-bidi", "reportlab", "segno", "tzdata")
"""Whose versions decide what is drawn."""

_OF_PILLOW = ("jpg", "libjpeg_turbo", "littlecms2", "webp", "zlib", "zlib_ng")
"""What Pillow reads, converts and compresses pictures with; it may be the system's."""

_EVENTS_REMEMBERED = 256

LAYOUT_ENDINGS = (".toml", ".json")

_IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".webp")


@attrs.frozen(kw_only=True, eq=False)
class Stock:
    """Fonts, words and layouts; *fingerprint* changes when any of it does."""

    values: Values = attrs.field(repr=False)
    layouts: Mapping[str, Layout] = attrs.field(repr=False)
    fingerprint: str
    setter: Typesetter = attrs.field(repr=False)
    _event: Callable[[Event, Language], Prepared] = attrs.field(init=False, repr=False)

    @_event.default
    def _remembered(self) -> Callable[[Event, Language], Prepared]:
        # A pure function of frozen values: remembering it changes nothing but the time.
        return Remembered(self._prepared_event, _EVENTS_REMEMBERED)

    @property
    def faces(self) -> Faces:
        """The two weights of the fonts."""
        return self.setter.faces

    def event(self, event: Event, language: Language) -> Prepared:
        """Return what every ticket of *event* says in *language*, drawable.

        Raises:
            InvalidRequest: the event's zone is unknown, or one of its times has none.
        """
        return self._event(event, language)

    def _prepared_event(self, event: Event, language: Language) -> Prepared:
        return prepared(event_content(event, language, self.values), self.faces)


@functools.cache  # loading takes a second and 60 MB; nothing in it changes, so the renderers of a process share it
def load_stock() -> Stock:
    """Load everything; opens files, takes about two seconds, is meant for a warm-up.

    Raises:
        FontError: a font file is missing or unsuitable.
        ConfigurationError: a layout is wrong.
    """
    text.warm_up()
    return Stock(
        values=load_values(),
        layouts=built_in_layouts(),
        fingerprint=own_fingerprint(),
        setter=Typesetter(load_faces()),
    )


def built_in_layouts() -> Mapping[str, Layout]:
    """Return the layouts that ship, by name.

    Raises:
        ConfigurationError: a layout is wrong.
    """
    return layouts_in(importlib.resources.files("stagedoor_renderers") / "layouts")


def layouts_in(folder: Traversable, *, code: str = probe.TOKEN) -> Mapping[str, Layout]:
    """Return the layouts of a folder: every ``.toml`` and ``.json`` file is one, pictures lie beside them.

    Args:
        folder: the folder.
        code: what a QR code will hold, or something as long.

    Raises:
        ConfigurationError: the folder cannot be read, or layouts in it are wrong; all
            problems of all of them.
    """
    try:
        names = sorted(item.name for item in folder.iterdir())
    except OSError as error:
        raise ConfigurationError(f"the folder of layouts {folder} cannot be read: {error}") from error
    return _layouts(folder, names, code)


def layout_of(file: Path, *, code: str = probe.TOKEN) -> Mapping[str, Layout]:
    """Return the layout in *file* by its name; pictures lie beside it, and nothing else there is looked at.

    Args:
        file: the file.
        code: what a QR code will hold, or something as long.

    Raises:
        ConfigurationError: it cannot be read, or is wrong; all its problems.
    """
    if file.suffix not in LAYOUT_ENDINGS:
        raise ConfigurationError(f"layout {file}: the name of a layout's file ends in {' or '.join(LAYOUT_ENDINGS)}")
    return _layouts(file.parent, [file.name], code)


def _layouts(folder: Traversable, names: Sequence[str], code: str) -> Mapping[str, Layout]:
    layouts: dict[str, Layout] = {}
    problems: list[str] = []
    for file in names:
        name, dot, ending = file.rpartition(".")
        if dot + ending not in LAYOUT_ENDINGS:
            continue
        if f"{name}.json" in names and ending == "toml":
            problems.append(f"layout {name} is there twice, as {name}.toml and as {name}.json; remove one of them")
            continue
        try:
            text_of_it = _text_of(folder, file)
            layouts[name] = read_layout(text_of_it, name=name, file=file, image=_finder(folder), code=code)
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(problems)
    return layouts


def _text_of(folder: Traversable, file: str) -> str:
    try:
        return (folder / file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"layout {file} cannot be read: {error}") from error


def _finder(folder: Traversable) -> Finder:
    def find(name: str) -> tuple[str, bytes]:
        for ending in _IMAGE_ENDINGS:
            file = folder / f"{name}{ending}"
            if file.is_file():
                return file.name, file.read_bytes()
        raise FileNotFoundError(name)

    return find


def hash_of_layout(file: Path, layouts: Mapping[str, Layout]) -> str:
    """Return a hash of one layout's file and of the pictures that it shows."""
    digest = hashlib.sha256(file.read_bytes())
    for image in sorted(image.name for layout in layouts.values() for image in layout.images.values()):
        digest.update(image.encode("ascii"))
    return digest.hexdigest()


def hash_of(folder: Traversable) -> str:
    """Return a hash of the names and contents of all files in *folder*, and in folders in it."""
    digest = hashlib.sha256()
    for path, file in _files(folder, ""):
        digest.update(f"{path}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def own_fingerprint() -> str:
    """Return a hash of this package's own files, and of the versions of all that it draws with.

    The code is part of it, so nobody has to remember to raise a version.
    """
    digest = hashlib.sha256(hash_of(importlib.resources.files("stagedoor_renderers")).encode())
    for library in _LIBRARIES:
        digest.update(f"{library} {importlib.metadata.version(library)}\0".encode())
    for library in _OF_PILLOW:
        digest.update(f"{library} {features.version(library)}\0".encode())
    digest.update(f"zlib {zlib.ZLIB_RUNTIME_VERSION} unicode {unicodedata.unidata_version}".encode())
    return digest.hexdigest()


def _files(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for item in sorted(folder.iterdir(), key=lambda entry: entry.name):
        path = f"{prefix}{item.name}"
        if item.is_dir() and item.name != "__pycache__":
            yield from _files(item, path + "/")
        elif item.is_file() and not item.name.endswith(".pyc"):
            yield path, item
