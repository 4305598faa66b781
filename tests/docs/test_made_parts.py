"""What the documentation repeats of the code is what the code says."""

import re
from pathlib import Path

import pytest

from stagedoor.cli.app import COMMANDS
from stagedoor.core.call import TRANSITIONS as CALL_TRANSITIONS
from stagedoor.core.call import CallState
from stagedoor.core.call import Happening as CallHappening
from stagedoor.core.outcome import TRANSITIONS, Happening
from stagedoor.settings import FIELDS
from tests.docs.generated import (
    CALL_SVG,
    ROOT,
    SVG,
    call_svg,
    commands_table,
    delivery_svg,
    markdown_files,
    settings_table,
    with_parts,
)
from tests.docs.ticket import PICTURE, TOKEN

AGAIN = "write it anew with: python -m tests.docs.generated"


@pytest.mark.parametrize("page", markdown_files(), ids=lambda page: page.stem)
def test_the_made_parts_of_a_page_are_what_the_code_says(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text == with_parts(text), AGAIN


def test_the_readme_has_every_setting_and_every_command() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert settings_table() in readme, AGAIN
    assert commands_table() in readme, AGAIN
    assert all(f"| `{name}` |" in readme for name in FIELDS)
    assert all(f"stagedoor {name}` |" in readme for name in COMMANDS)


def test_the_picture_of_a_delivery_is_made_from_the_table() -> None:
    assert SVG.read_text("utf-8") == delivery_svg(), AGAIN


def test_the_picture_shows_every_happening_and_every_outcome() -> None:
    picture = delivery_svg()
    outcomes = {outcome.__name__ for row in TRANSITIONS.values() for _, found in row.values() for outcome in found}
    assert all(happening.value in picture for happening in Happening)
    assert all(name in picture for name in outcomes)


def test_the_picture_of_a_call_is_made_from_the_table_and_shows_all_of_it() -> None:
    assert CALL_SVG.read_text("utf-8") == call_svg(), AGAIN
    assert all(happening.value in call_svg() for happening in CallHappening)
    assert all(state.value in call_svg() for state in CallState)
    assert call_svg().count("<circle") == sum(len(row) for row in CALL_TRANSITIONS.values())


def test_the_ticket_of_the_readme_is_one() -> None:
    zxingcpp = pytest.importorskip("zxingcpp", reason="zxing-cpp comes with the extra test")
    from PIL import Image

    with Image.open(PICTURE) as image:
        codes = [code.text for code in zxingcpp.read_barcodes(image.convert("L"))]
    assert codes == [TOKEN]
    assert PICTURE.stat().st_size < 150_000


@pytest.mark.parametrize("page", markdown_files(), ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    missing = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert missing == []


def test_every_test_that_the_cases_name_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "cases.md").read_text("utf-8"))
    assert named
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / file).is_file()
        or not re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE)
    ]
    assert missing == []


def test_every_case_is_told_in_whole_rows() -> None:
    rows = re.findall(r"^\| [QT]\d+ .*$", (ROOT / "docs" / "cases.md").read_text("utf-8"), re.MULTILINE)
    assert len(rows) >= 44
    assert [row for row in rows if row.count(" | ") != 3 and not row.endswith("| |")] == []
