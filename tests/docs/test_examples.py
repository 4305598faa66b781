"""What the README and the guides show works when it is done as it stands there."""

import os
from pathlib import Path

import pytest

from tests.docs.examples import Block, Reader, blocks_of, is_like, sessions_of
from tests.docs.generated import ROOT, markdown_files

PAGES = [path for path in markdown_files() if any(block.verb for block in blocks_of(path.read_text("utf-8")))]


@pytest.fixture
def environ(redis_url: str, redis_program: str, namespace: str) -> dict[str, str]:
    """The environment of somebody who follows a page: no settings but where Redis is."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STAGEDOOR_")}
    return kept | {
        "STAGEDOOR_REDIS_URL": redis_url,
        "STAGEDOOR_NAMESPACE": namespace,
        "PATH": os.pathsep.join([str(Path(redis_program).parent), os.environ.get("PATH", os.defpath)]),
    }


@pytest.mark.process
@pytest.mark.redis
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_can_be_followed_from_top_to_bottom(
    page: Path, tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reader = Reader(tmp_path, environ)
    for block in blocks_of(page.read_text("utf-8")):
        if block.verb:
            reader.do(block)


def test_the_pages_that_show_something_to_do_are_followed() -> None:
    assert {page.stem for page in PAGES} >= {"README", "flows", "handlers", "renderers"}


@pytest.mark.process
@pytest.mark.redis
def test_the_case_of_the_handlers_is_tested_as_the_page_of_the_fixtures_says(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    """Two pages together: the handler and its case are on one, how a suite of tests plays it on the other."""
    reader = Reader(tmp_path, environ)
    for name in ("handlers", "fixtures"):
        for block in blocks_of((ROOT / "docs" / f"{name}.md").read_text("utf-8")):
            if block.verb == "file":
                reader.do(block)
    text = "$ python -m pytest -q -p no:cacheprovider test_cases.py\n…1 passed…\n"
    reader.do(Block(line=0, verb="run", what="console", language="console", text=text))


def test_no_two_pages_give_different_files_one_name() -> None:
    """Who follows one page after the other in one folder would lose the first's."""
    written: dict[str, set[str]] = {}
    for page in PAGES:
        for block in blocks_of(page.read_text("utf-8")):
            if block.verb == "file":
                written.setdefault(block.what, set()).add(block.text)
    assert [name for name, texts in written.items() if len(texts) > 1] == []


@pytest.mark.parametrize("page", markdown_files(), ids=lambda page: page.stem)
def test_every_python_block_is_run_or_written(page: Path) -> None:
    """A block that nobody tries goes stale."""
    untried = [
        block.text.splitlines()[0]
        for block in blocks_of(page.read_text("utf-8"))
        if block.language == "python" and not block.verb
    ]
    assert untried == []


def test_blocks_are_found_with_what_is_to_be_done() -> None:
    page = "words\n<!-- file: a.py -->\n```python\nx = 1\n```\n```toml\ny\n```\n"
    page += "<!-- worker -->\n\n<!-- run: console -->\n```console\n$ z\n```\n"
    assert list(blocks_of(page)) == [
        Block(line=2, verb="file", what="a.py", language="python", text="x = 1\n"),
        Block(line=6, verb="", what="", language="toml", text="y\n"),
        Block(line=9, verb="worker", what="", language="", text=""),
        Block(line=11, verb="run", what="console", language="console", text="$ z\n"),
    ]


def test_a_console_block_is_commands_with_their_output() -> None:
    assert list(sessions_of("$ a\n1\n2\n$ b\n")) == [("a", "1\n2\n"), ("b", "")]


@pytest.mark.parametrize(
    "found,shown,expected",
    [
        ("a  b\n", "a b", True),
        ("a\n\nb\n", "a\nb", True),
        ("a\nx\ny\nb\n", "a\n…\nb", True),
        ("done in 3.1 s\n", "done in … s", True),
        ("a\nb\n", "a", False),
        ("a.b\n", "a-b", False),
        ("", "", True),
    ],
)
def test_output_is_compared_but_for_spaces_and_dots(found: str, shown: str, *, expected: bool) -> None:
    assert is_like(found, shown) is expected
