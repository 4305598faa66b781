"""Fonts: what cannot be embedded is refused at start by its file, and glyph pages are whole, fixed and small."""

import importlib.resources
import shutil
import struct
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stagedoor_renderers.kit import pages
from stagedoor_renderers.kit.cutting import cut
from stagedoor_renderers.kit.faces import SHIPPED, Faces, FontFile, load_faces
from stagedoor_renderers.kit.pages import FIRST_CODE, PAGE_SIZE, CutPage, Page
from stagedoor_renderers.kit.scripts import REPLACEMENT, may_be_drawn
from stagedoor_renderers.kit.sfnt import FontError, TrueType, read_truetype

FONTS = Path(str(importlib.resources.files("stagedoor_renderers") / "fonts"))
LATO = (FONTS / "lato" / "Lato-Regular.ttf").read_bytes()


@pytest.fixture(scope="module")
def lato() -> TrueType:
    return read_truetype(LATO, "Lato-Regular.ttf")


def with_rights(rights: int) -> bytes:
    """Lato with another fsType: what its owner allows."""
    data = bytearray(LATO)
    for index in range(struct.unpack_from(">H", data, 4)[0]):
        tag, _, offset, _ = struct.unpack_from(">4sLLL", data, 12 + 16 * index)
        if tag == b"OS/2":
            struct.pack_into(">H", data, offset + 8, rights)
    return bytes(data)


def without_table(tag: bytes) -> bytes:
    return LATO.replace(tag, b"xxxx", 1)


def with_outlines_elsewhere() -> bytes:
    at = LATO.index(b"loca")
    (offset,) = struct.unpack_from(">L", LATO, at + 8)
    return LATO[: offset + 8] + b"\xff\xff\xff\xff" + LATO[offset + 12 :]


def with_anchors_elsewhere() -> bytes:
    at = LATO.index(b"GPOS")
    (offset,) = struct.unpack_from(">L", LATO, at + 8)
    return LATO[: offset + 8] + b"\xff\xff" + LATO[offset + 10 :]


@pytest.mark.parametrize(
    "data, said",
    [
        (b"OTTO" + LATO[4:], "PostScript outlines"),
        (b"ttcf" + LATO[4:], "collection of fonts"),
        (b"GIF89a", "no TrueType font"),
        (b"", "no TrueType font"),
        (without_table(b"glyf"), "no TrueType outlines"),
        (without_table(b"loca"), "no TrueType outlines"),
        (without_table(b"cmap"), "tables cmap are missing"),
        (LATO[:5000], "beyond the end of the file"),
        (LATO[:20], "damaged"),
        (with_outlines_elsewhere(), "damaged: outlines are not where they should be"),
        (with_anchors_elsewhere(), "damaged"),
        (with_rights(0x0002), "forbids embedding it"),
        (with_rights(0x0100), "forbids embedding parts"),
    ],
)
def test_a_font_that_cannot_be_embedded_is_refused_with_its_file(data: bytes, said: str) -> None:
    with pytest.raises(FontError, match=f"font file house.ttf .*{said}"):
        read_truetype(data, "house.ttf")


def test_a_font_that_may_be_edited_may_be_embedded() -> None:
    assert read_truetype(with_rights(0x0008), "house.ttf").postscript_name == "Lato-Regular"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FontError, match=r"font file lato/Lato-Regular\.ttf cannot be read"):
        load_faces(tmp_path)


def test_fonts_that_lack_a_script_are_refused_with_the_characters() -> None:
    latin = (FontFile(path="lato/Lato-Regular.ttf", letter="L", weights=("regular", "bold")),)
    with pytest.raises(FontError, match=r"lato/Lato-Regular\.ttf lack .*U\+5C71"):
        load_faces(files=latin)


def test_what_ships_carries_its_licences() -> None:
    for folder in {file.path.split("/")[0] for file in SHIPPED}:
        texts = [file for file in (FONTS / folder).iterdir() if file.suffix == ".txt"]
        assert len(texts) == 1
        assert "Licen" in texts[0].read_text("utf-8") or "Permission is hereby granted" in texts[0].read_text("utf-8")


# -- coverage -----------------------------------------------------------------

SCRIPTS = {
    "Latin-1": range(0xC0, 0x100),
    "Latin Extended-A": range(0x100, 0x180),
    "Vietnamese": range(0x1EA0, 0x1EFA),
    "Greek": [*range(0x391, 0x3A2), *range(0x3A3, 0x3CF)],
    "Cyrillic": range(0x400, 0x460),
    "Hebrew": range(0x5D0, 0x5EB),
    "Arabic, joined": range(0xFE80, 0xFEFD),
    "Han in daily use": range(0x4E00, 0x9FA6),
    "Hangul": range(0xAC00, 0xD7A4),
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_character_of_a_script_can_be_drawn(faces: Faces, script: str) -> None:
    assert [hex(code) for code in SCRIPTS[script] if chr(code) not in faces.common] == []


def test_scripts_that_need_shaping_cannot_although_fonts_have_glyphs_for_them(faces: Faces) -> None:
    for char in "กคຂນߒཀᠠ":
        assert char not in faces.common
        assert not may_be_drawn(ord(char))


def test_the_mark_for_what_is_missing_is_not_missing(faces: Faces) -> None:
    assert REPLACEMENT in faces.common


# -- glyph pages --------------------------------------------------------------


def test_a_page_is_a_font_that_shows_each_character_at_its_code(faces: Faces, lato: TrueType) -> None:
    page = faces.regular.glyphs["A"].page
    cut_out = read_truetype_page(zlib.decompress(page.cut().font_file))
    for char in "AZazÄß€ 0":
        glyph = faces.regular.glyphs[char]
        code = 32 if char == " " else glyph.code
        original = lato.advances[lato.cmap[ord(char)]]
        assert cut_out[code] == original


def read_truetype_page(data: bytes) -> dict[int, int]:
    """Advances by code, read from the page's own tables."""
    tables = {}
    for index in range(struct.unpack_from(">H", data, 4)[0]):
        tag, _, offset, length = struct.unpack_from(">4sLLL", data, 12 + 16 * index)
        tables[tag.decode()] = data[offset : offset + length]
    form, _, _, first, count = struct.unpack_from(">5H", tables["cmap"], 12)
    assert form == 6
    glyphs = struct.unpack_from(f">{count}H", tables["cmap"], 22)
    return {first + i: struct.unpack_from(">H", tables["hmtx"], 4 * glyph)[0] for i, glyph in enumerate(glyphs)}


def test_no_page_has_more_characters_than_codes(faces: Faces) -> None:
    counts: dict[str, int] = {}
    for face in (faces.regular, faces.bold):
        for char, glyph in face.glyphs.items():
            if char != " ":
                assert FIRST_CODE <= glyph.code <= 255
                counts[f"{face.weight} {glyph.page.resource}"] = (
                    counts.get(f"{face.weight} {glyph.page.resource}", 0) + 1
                )
    assert max(counts.values()) <= PAGE_SIZE


@pytest.mark.parametrize(
    "words",
    ["Müller & Søn – “Größe”", "Đặng Thị Ánh Nguyệt", "Řehoř Łódź Ağrı", "Αθηνά", "Ольга", "さくらカタカナ、東京"[:8]],
)
def test_what_is_used_together_is_on_few_pages(faces: Faces, words: str) -> None:
    assert len({faces.regular.glyphs[char].page.resource for char in words if char != " "}) <= 2


def test_a_cut_without_its_hints_keeps_its_outlines(lato: TrueType) -> None:
    """The composite letter refers to its parts by their new numbers."""
    glyphs = [lato.cmap[ord(char)] for char in "Äé"]
    data = cut(lato, glyphs, first_code=33, space=lato.cmap[32])
    assert len(data) < 8000
    assert b"fpgm" not in data[:300]


def test_cutting_is_the_same_in_every_thread(lato: TrueType) -> None:
    glyphs = list(lato.cmap.values())[:PAGE_SIZE]
    expected = cut(lato, glyphs, first_code=33, space=lato.cmap[32])
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(cut(lato, glyphs, first_code=33, space=lato.cmap[32])))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8


def test_loading_from_another_folder_gives_the_same_pages(tmp_path: Path, faces: Faces) -> None:
    """Nothing of the path is in the pages: two machines make the same documents."""
    shutil.copytree(FONTS, tmp_path / "fonts")
    again = load_faces(tmp_path / "fonts")
    assert again.fingerprint == faces.fingerprint
    assert again.regular.glyphs["山"].page.cut().base_font == faces.regular.glyphs["山"].page.cut().base_font
    assert again.regular.glyphs["山"].page.cut().font_file == faces.regular.glyphs["山"].page.cut().font_file


def test_eight_threads_that_need_a_page_first_share_one_cut(monkeypatch: pytest.MonkeyPatch, faces: Faces) -> None:
    cuts: list[int] = []
    start, second = threading.Barrier(8), threading.Event()

    def cut_out(*_: object) -> CutPage:
        cuts.append(1)
        if len(cuts) > 1:
            second.set()
        # Without the lock, another one comes in while this one waits for it.
        second.wait(0.2)
        return CutPage(
            base_font="X", font_file=b"", font_file_length=0, to_unicode=b"", font_entries="", descriptor_entries=""
        )

    monkeypatch.setattr(pages, "_cut_page", cut_out)
    page = Page("C0", font=faces.regular.glyphs["a"].page.font, shapes=(), says=(), needs_thickening=True)

    def ask(_: int) -> CutPage:
        start.wait()
        return page.cut()

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(ask, range(8)))
    assert cuts == [1]
    assert all(cut is found[0] for cut in found)


def test_a_page_is_cut_when_it_is_needed_and_not_before() -> None:
    """Over 200 pages are mostly Han and Hangul; a start that cuts all of them takes twice as long."""
    faces = load_faces()
    assert {glyph.page._cut for glyph in faces.regular.glyphs.values()} == {None}
