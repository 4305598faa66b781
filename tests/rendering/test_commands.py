"""The commands about the ticket engine: `preview`, `verify`, `renderers new`."""

import importlib
import importlib.metadata
import json
import sys
from pathlib import Path

import pytest

from stagedoor.cli import renderers_view
from stagedoor.cli.app import run
from stagedoor.cli.preview_made import as_placed
from stagedoor.orders import parse_line
from stagedoor_renderers.signing import Signer, new_key, public_pem
from tests.rendering.orders import TOKEN, order, position
from tests.rendering.reading import codes_of, page_count, text_of

LINE = {
    "event": {
        "name": "Nabucco",
        "venue": "Arena, Verona",
        "starts_at": "2026-07-01T18:00:00Z",
        "tz": "Europe/Rome",
    },
    "locale": "it-IT",
    "currency": "EUR",
    "buyer": "Zoë Šimková",
    "positions": [{"id": 1, "holder": "Zoë 🎉 Šimková", "category": "Platea", "amount_minor": 0}],
}


# -- preview -------------------------------------------------------------------


def test_a_preview_is_a_pdf_and_a_picture_of_each_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["preview", "wristband", "--folder", str(tmp_path / "new")]) == 0
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [path.name for path in written] == ["wristband.pdf", *(f"wristband-{n}.png" for n in (1, 2, 3))]
    assert page_count(written[0].read_bytes()) == 3
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written[1:])


@pytest.mark.parametrize("indent", [None, 2])
def test_a_preview_of_an_order_shows_it_and_tells_what_could_not_be_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], indent: int | None
) -> None:
    """One line of many, or one object over many lines."""
    file = tmp_path / "orders.jsonl"
    lines = "\n" + json.dumps(LINE, indent=indent) + "\n"
    file.write_text(lines + ('{"the second line": "is not looked at"}\n' if indent is None else ""), encoding="utf-8")
    assert run(["preview", "a5", "--order", str(file), "--folder", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [Path(line).name for line in said[:2]] == ["a5.pdf", "a5.png"]
    assert said[2].startswith("note: holder: 1 replaced by a mark")
    pdf = (tmp_path / "a5.pdf").read_bytes()
    assert "Nabucco" in text_of(pdf)
    assert codes_of(pdf) == [as_placed(parse_line(json.dumps(LINE))).positions[0].token]


def test_without_pdfium_a_preview_is_the_pdf_alone_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    assert run(["preview", "phone", "--folder", str(tmp_path)]) == 0
    assert "pip install pypdfium2" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["phone.pdf"]


@pytest.mark.parametrize(
    "words, code, said",
    [
        (["preview", "a6"], 2, "there is none called 'a6'"),
        (["preview", "not-there.toml"], 2, "layout not-there.toml cannot be read"),
        (["preview", "a5", "--order", "not-there.json"], 2, "not-there.json cannot be read"),
        (["preview", "a5", "--order", "bad.json"], 1, "event"),
        (["preview", "a5", "--order", "empty.json"], 1, "holds no order"),
        (["preview", "own.json"], 2, "layout own.json is no JSON"),
    ],
)
def test_what_is_wrong_with_a_preview_is_said_in_a_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    words: list[str],
    code: int,
    said: str,
) -> None:
    """What else lies in the folder does not matter: only the files that are named are read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text("{}")
    (tmp_path / "empty.json").write_text("\n")
    (tmp_path / "own.json").write_text("{,}")
    assert run(words) == code
    assert said in capsys.readouterr().err


# -- verify --------------------------------------------------------------------


@pytest.fixture
def signed(tmp_path: Path) -> tuple[str, str]:
    """A signed token, and what names its key on the command line."""
    key = new_key()
    (tmp_path / "door.pem").write_bytes(public_pem(key.public_key()))
    whole = order(position(token=TOKEN))
    return Signer(private_key=key, key=7)(whole, whole.positions[0]), f"7={tmp_path / 'door.pem'}"


def test_a_genuine_token_says_whose_it_is(signed: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    code, key = signed
    assert run(["verify", code, "--key", key]) == 0
    said = capsys.readouterr().out
    assert said.startswith("genuine\n")
    assert TOKEN in said
    assert run(["verify", code, "--key", key, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"genuine": True, "order_id": 4471, "position_id": 1, "token": TOKEN, "key": 7}


def test_a_forged_token_is_told_with_its_reason(signed: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    code, key = signed
    forged = code[:40] + ("A" if code[40] != "A" else "B") + code[41:]
    assert run(["verify", forged, "--key", key]) == 1
    assert capsys.readouterr().out.startswith("not genuine: ")
    assert run(["verify", TOKEN, "--key", key, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["genuine"] is False


def test_verifying_needs_a_key_that_can_be_read(signed: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", signed[0]]) == 2
    assert "--key" in capsys.readouterr().err
    assert run(["verify", signed[0], "--key", "7=not-there.pem"]) == 2
    assert "not-there.pem cannot be read" in capsys.readouterr().err


# -- renderers -------------------------------------------------------------------

DRAWS = """
import threading
from stagedoor.errors import ConfigurationError
class Drawer:
    def __init__(self, name): self.name = name
    version, content_type, suffix = "1", "text/plain", ".txt"
    def fingerprint(self): return "f"
    def warm_up(self): pass
    def render(self, request, check): return b"x"
class Broken(Drawer):
    def warm_up(self): raise FileNotFoundError(2, "No such file", "Lato.\x1b[31mttf")
class Unready(Drawer):
    def warm_up(self): raise ConfigurationError(["layout a: too small", "layout b: no such colour"])
class Stuck(Drawer):
    def warm_up(self): threading.Event().wait()
class Ended(Drawer):
    def warm_up(self): raise GeneratorExit("no Exception")
RENDERERS = (Drawer("works"), Broken("broken"), Unready("unready"), Stuck("stuck"), Ended("ended"))
"""


@pytest.fixture
def drawers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with one renderer that works, and four that do not come ready."""
    (tmp_path / "drawers.py").write_text(DRAWS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "drawers", raising=False)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: ())
    monkeypatch.setattr(renderers_view, "_PATIENCE_S", 2)
    return "drawers"


def test_each_renderer_is_warmed_up_and_what_is_wrong_is_said_of_it(
    drawers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["renderers", "--plugins", drawers]) == 1
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["name", "broken", "ended", "stuck", "unready", "works"]
    failed = "of no distribution failed to warm up"
    assert err.splitlines() == [
        rf"stagedoor: renderer broken {failed}: FileNotFoundError: [Errno 2] No such file: 'Lato.\x1b[31mttf'",
        f"stagedoor: renderer ended {failed}: GeneratorExit: no Exception",
        "stagedoor: renderer stuck is still warming up after 2 s; given up",
        f"stagedoor: renderer unready {failed}: layout a: too small",
        f"stagedoor: renderer unready {failed}: layout b: no such colour",
    ]


def test_programs_are_told_what_is_wrong_with_each_renderer(drawers: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["renderers", "--json", "--plugins", drawers]) == 1
    found = {item["name"]: item["problems"] for item in json.loads(capsys.readouterr().out)["renderers"]}
    assert found["works"] == []
    assert [len(found[name]) for name in ("broken", "unready", "stuck", "ended")] == [1, 2, 1, 1]


def test_renderers_that_come_ready_are_listed_without_a_word(
    drawers: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(drawers)
    monkeypatch.setattr(module, "RENDERERS", module.RENDERERS[:1])
    assert run(["renderers", "--plugins", drawers]) == 0
    assert capsys.readouterr().err == ""


# -- renderers new -------------------------------------------------------------


def test_a_new_renderer_is_written_and_what_comes_next_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["renderers", "new", "house-ticket", "--folder", str(tmp_path)]) == 0
    assert f"pip install -e '{tmp_path}/house-ticket[test]'" in capsys.readouterr().out
    assert (tmp_path / "house-ticket" / "pyproject.toml").is_file()
    assert run(["renderers", "new", "house-ticket", "--folder", str(tmp_path)]) == 2
    assert "is there already" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["ticket-pdf", "works", "class"])
def test_a_new_renderer_has_a_name_of_its_own(
    name: str, drawers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "ticket-pdf":
        monkeypatch.undo()
    words = ["renderers", *(["--plugins", drawers] if name == "works" else []), "new", name]
    assert run([*words, "--folder", str(tmp_path)]) == 2
    assert f"a renderer cannot be called '{name}': " in capsys.readouterr().err
    assert not (tmp_path / name).exists()


# -- without the engine --------------------------------------------------------


@pytest.mark.parametrize(
    "words", [["preview", "a5"], ["verify", "S1", "--key", "door.pem"], ["renderers", "new", "house-ticket"]]
)
def test_without_the_engine_the_commands_say_what_to_install(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "stagedoor_renderers"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "stagedoor_renderers", None)
    for name in ("preview_made", "verify_view"):
        monkeypatch.delitem(sys.modules, f"stagedoor.cli.{name}", raising=False)
        monkeypatch.delattr(sys.modules["stagedoor.cli"], name, raising=False)
    assert run(words) == 2
    assert f"{words[0]}" in (said := capsys.readouterr().err)
    assert "pip install 'stagedoor[tickets]'" in said
