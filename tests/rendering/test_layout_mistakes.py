"""What is wrong with a layout's file is said all at once, with the file and the box, before anything is drawn."""

import json
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest

from stagedoor.errors import ConfigurationError
from stagedoor_renderers.boxes import BOX_TYPES
from stagedoor_renderers.kit import settings
from stagedoor_renderers.layout import read_layout
from stagedoor_renderers.ticket_pdf import TicketPdf
from tests.rendering.reference import keys_of
from tests.rendering.test_layouts import GOOD, as_json


def problems_of(text: str) -> Sequence[str]:
    with pytest.raises(ConfigurationError) as caught:
        read_layout(text, name="own", file="own.toml")
    return caught.value.problems


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("[page]", "[page", "layout own.toml is no TOML"),
        ("width = 100", 'width = "wide"', "[page] width must be a number from 20 to 1000, found 'wide'"),
        ("width = 100\n", "", "[page] width is missing"),
        ("width = 100", "width = 5", "[page] width must be from 20 to 1000, found 5"),
        ("size = 12", "size = 0", "box 1 (who): size must be from 1 to 200, found 0"),
        ("size = 12", "size = nan", "box 1 (who): size must be a number"),
        ("size = 12", f"size = {10**400}", "box 1 (who): size must be from 1 to 200, found 1000"),
        ("size = 12", "sise = 12", "box 1 (who): unknown key sise; did you mean size?"),
        ("size = 12", "size = 12\nborders = 1", "box 1 (who): unknown key borders; there are name, needs"),
        ("size = 12\n", "", "box 1 (who): size is missing"),
        ('"{holder}"', '"{owner}"', "box 1 (who): text names a field that does not exist: 'owner'"),
        ('"{holder}"', '"{holder"', "has a brace without its partner"),
        (
            '"{holder}"',
            '"{owner} {evnt}"',
            "box 1 (who): text names a field that does not exist: 'evnt'; did you mean event",
        ),
        ('"{holder}"', '"{label.rwo}"', "text names a word that does not exist: 'label.rwo'; did you mean label.row?"),
        ('type = "text"', 'type = "txt"', "box 1 (who): type 'txt' does not exist; did you mean text?"),
        ('type = "text"', 'type = "table"', "box 1 (who): type 'table' does not exist; there are text, paragraph"),
        ('type = "text"', 'type = ["text"]', "box 1 (who): type ['text'] does not exist"),
        ('type = "text"\n', "", "box 1 (who): type is missing; there are text, paragraph"),
        ("x = 10", "x = 60", "box 1 (who): ends at 140 x 20 mm, outside the page of 100 x 100 mm"),
        ("side = 40", "side = 80", "box 2 (code): ends at 110 x 120 mm, outside the page"),
        ("size = 12", 'size = 12\ncolor = "gold"', "box 1 (who): color 'gold' is not in [colors]"),
        ("size = 12", 'size = 12\ncolor = "#FFF"', "color must be #rrggbb in lower case"),
        ("size = 12", "size = 12\nrotate = 45", "rotate must be one of 0, 90, 180, 270, found 45"),
        ("size = 12", 'size = 12\nfont = "Helvetica"', "font must be one of regular, bold, found 'Helvetica'"),
        ("size = 12", "size = 12\nlines = 1.5", "lines must be a whole number from 1 to 20"),
        ("size = 12", 'size = 12\nneeds = ["rown"]', "needs names a field that does not exist: 'rown'"),
        ("height = 100", "height = 100\nfolds = [60]", "box 2 (code): lies across the fold at 60 mm"),
        ("height = 100", "height = 100\nvertical_folds = [50]", "box 2 (code): lies across the fold at 50 mm"),
        ("[page]", 'font = "x"\n[page]', "unknown key font; there are page, colors, box"),
        ("[page]", 'colours = "x"\n[page]', "unknown key colours; did you mean colors?"),
        ("[page]", "[page]\nmarign = 5", "[page] unknown key marign; did you mean margin?"),
        ("size = 12", 'size = 12\ncolor = "with"', "color 'with' is not in [colors]; did you mean white?"),
        ("size = 12", 'size = 12\nneeds = ["a", "b"]', "needs names a field that does not exist: 'b'"),
        ("height = 100", "height = 100\nfolds = [-1, 2000]", "[page] folds must be from 0 to 1000, found 2000"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_box(old: str, new: str, said: str) -> None:
    problems = problems_of(GOOD.replace(old, new, 1))
    assert any(said in problem and "own.toml" in problem for problem in problems), problems


BAD = """
unknown = 1

[page]
width = 148
height = 10000
marign = 4

[colors]
gold = "red"

[[box]]
name = "headline"
type = "text"
text = "{evnt} {label.strat} }"
x = 15
y = 14
w = 200
h = 50
size = "big"
color = "gould"
aling = "center"

[[box]]
type = "image"
image = "logo"
x = 1
y = 1
w = 10
h = 10

[[box]]
name = "nothing"
type = "txt"

[[box]]
name = "seats"
type = "stack"
x = 140
y = 40
w = 8
h = 10
items = [
  { text = "{holder}", size = 9, color = "gold" },
  { text = "{seat}" },
  { text = "x", size = 3, colour = "ink", color = "lead", gap = -1 },
]

[[box]]
name = "code"
type = "qr"
x = 140
y = 14
side = 12

[[box]]
name = "Way Off"
type = "line"
x1 = -5
y1 = 0
x2 = 900
y2 = 3

[[box]]
name = "spot"
type = "circle"
x = 145
y = 20
r = 3
color = "nope"
"""


def test_everything_that_is_wrong_with_a_file_is_told_at_once_with_the_right_numbers() -> None:
    told = [problem.removeprefix("layout own.toml: ") for problem in problems_of(BAD)]
    assert told == [
        "unknown key unknown; there are page, colors, box",
        "[page] unknown key marign; did you mean margin?",
        "[page] height must be from 20 to 1000, found 10000",
        "[colors] gold must be #rrggbb in lower case, found 'red'",
        "box 1 (headline): unknown key aling; did you mean align?",
        "box 1 (headline): text names a field that does not exist: 'evnt'; did you mean event?",
        "box 1 (headline): text names a word that does not exist: 'label.strat'; did you mean label.start?",
        "box 1 (headline): text has a brace without its partner in ' }'",
        "box 1 (headline): size must be a number from 1 to 200, found 'big'",
        "box 1 (headline): color 'gould' is not in [colors]; did you mean gold?",
        "box 1 (headline): ends at 215 x 64 mm, outside the page of 148 x ? mm",
        "box 2: there is no image logo beside it, as .png, .jpg, .jpeg or .webp",
        "box 3 (nothing): type 'txt' does not exist; did you mean text?",
        "box 4 (seats): item 2: size is missing",
        "box 4 (seats): item 3: unknown key colour; did you mean color?",
        "box 4 (seats): item 3: gap must be from 0 to 1000, found -1",
        "box 4 (seats): item 3: color 'lead' is not in [colors]; there are ink, muted, white, gold",
        "box 5 (code): ends at 152 x 26 mm, outside the page of 148 x ? mm",
        "box 5 (code): side of 12 mm is too small; the code needs 16.5 mm",
        "box 6: name must be lower-case letters, digits and dashes, found 'Way Off'",
        "box 6: x1 must be from 0 to 1000, found -5",
        "box 6: has an end at 900 x 3 mm, outside the page of 148 x ? mm",
        "box 7 (spot): color 'nope' is not in [colors]; there are ink, muted, white, gold",
        "box 7 (spot): lies over the code of box 5 (code); put it before that box, or elsewhere",
    ]


@pytest.mark.parametrize("kind", BOX_TYPES)
def test_a_box_of_which_nothing_can_be_read_lacks_what_it_must_have_and_nothing_else(kind: str) -> None:
    """A place that is not known is neither outside the page nor over a code."""
    text = GOOD + f'[[box]]\ntype = "{kind}"\n'
    must = [key.name for key in keys_of(BOX_TYPES[kind]) if key.default is attrs.NOTHING]
    assert list(problems_of(text)) == [f"layout own.toml: box 3: {key} is missing" for key in must]


def test_a_code_whose_place_is_not_known_hides_nothing_and_accuses_nobody() -> None:
    line = '[[box]]\ntype = "line"\nx1 = 0\ny1 = 0\nx2 = 100\ny2 = 100\ncolor = "gold"\n'
    told = problems_of(GOOD.replace("side = 40", "") + line)
    assert [problem.split(": ", 2)[1:] for problem in told] == [
        ["box 2 (code)", "side is missing"],
        ["box 3", "color 'gold' is not in [colors]; there are ink, muted, white"],
    ]


def test_all_that_is_wrong_with_a_folder_is_told_at_once(tmp_path: Path) -> None:
    """Two files, a picture that cannot be read and codes that are too small: one start says it all."""
    small = GOOD.replace("side = 40", "side = 12")
    box = '[[box]]\ntype = "image"\nimage = "logo"\nx = 1\ny = 1\nw = 5\nh = 5\n'
    again = '[[box]]\nname = "other"\ntype = "qr"\nx = 1\ny = 60\nside = 11\n'
    (tmp_path / "one.toml").write_text(small + again + box, encoding="utf-8")
    (tmp_path / "two.json").write_text(as_json(small.replace("size = 12", "size = 0")), encoding="utf-8")
    (tmp_path / "logo.png").write_bytes(b"no picture")
    with pytest.raises(ConfigurationError) as caught:
        TicketPdf(layouts=tmp_path, layout="one", name="own-ticket").warm_up()
    assert caught.value.problems == (
        "layout one.toml: box 2 (code): side of 12 mm is too small; the code needs 16.5 mm",
        "layout one.toml: box 3 (other): side of 11 mm is too small; the code needs 16.5 mm",
        "layout one.toml: box 4: image logo.png is no PNG, JPEG or WebP file",
        "layout two.json: box 1 (who): size must be from 1 to 200, found 0",
        "layout two.json: box 2 (code): side of 12 mm is too small; the code needs 16.5 mm",
    )


def test_a_picture_that_may_not_be_read_is_named() -> None:
    def locked(name: str) -> tuple[str, bytes]:
        raise PermissionError(13, "Permission denied", f"{name}.png")

    box = '[[box]]\ntype = "image"\nimage = "logo"\nx = 1\ny = 1\nw = 5\nh = 5\n'
    with pytest.raises(ConfigurationError, match=r"own\.toml: box 3: image logo cannot be read: .*Permission denied"):
        read_layout(GOOD + box, name="own", file="own.toml", image=locked)


def test_a_code_must_have_room_for_what_it_will_hold(tmp_path: Path) -> None:
    """A signed token is longer, so the same box may be large enough for one renderer and not for another."""
    (tmp_path / "own.toml").write_text(GOOD, encoding="utf-8")
    (tmp_path / "small.toml").write_text(GOOD.replace("side = 40", "side = 17"), encoding="utf-8")
    TicketPdf(layouts=tmp_path, layout="own").warm_up()
    said = ("layout small.toml: box 2 (code): side of 17 mm is too small; the code needs 22.5 mm",)
    for layouts, layout in ((tmp_path, "own"), (tmp_path / "small.toml", "a5")):
        with pytest.raises(ConfigurationError) as caught:
            TicketPdf(layouts=layouts, layout=layout, sign=lambda order, position: "S1" + "A" * 151).warm_up()
        assert caught.value.problems == said


def test_what_is_wrong_besides_the_layouts_is_told_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "changed_settings", lambda: ("another package has changed ReportLab",))
    (tmp_path / "own.toml").write_text(GOOD.replace("size = 12", "size = 0"), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"(?s)has changed ReportLab.*own\.toml: box 1 \(who\): size"):
        TicketPdf(layouts=tmp_path, layout="own").warm_up()


# -- on the page, and off the codes ------------------------------------------------


def box_of(kind: str, **values: object) -> str:
    told = "\n".join(f"{key} = {json.dumps(value)}" for key, value in values.items())
    return f'\n[[box]]\nname = "it"\ntype = "{kind}"\n{told}\n'


def told_of(box: str, layout: str = GOOD) -> list[str]:
    """What is wrong with a box that comes after the text, and the code at 30 to 70, 40 to 80 mm."""
    try:
        read_layout(layout + box, name="own", file="own.toml")
    except ConfigurationError as wrong:
        return [problem.removeprefix("layout own.toml: box 3 (it): ") for problem in wrong.problems]
    return []


OUTSIDE = "outside the page of 100 x 100 mm"


@pytest.mark.parametrize(
    "box, said",
    [
        (box_of("line", x1=5, y1=5, x2=900, y2=5), f"has an end at 900 x 5 mm, {OUTSIDE}"),
        (box_of("line", x1=5, y1=101, x2=5, y2=5), f"has an end at 5 x 101 mm, {OUTSIDE}"),
        (box_of("circle", x=101, y=5, r=1, color="ink"), f"has its middle at 101 x 5 mm, {OUTSIDE}"),
        (box_of("circle", x=5, y=120, r=1, color="ink"), f"has its middle at 5 x 120 mm, {OUTSIDE}"),
        (box_of("rect", x=90, y=5, w=11, h=5, color="ink"), f"ends at 101 x 10 mm, {OUTSIDE}"),
        (box_of("addons", x=5, y=90, w=10, h=11, size=9), f"ends at 15 x 101 mm, {OUTSIDE}"),
    ],
)
def test_what_leaves_the_page_is_refused(box: str, said: str) -> None:
    assert told_of(box) == [said]


def test_a_circle_that_is_larger_than_the_page_is_refused() -> None:
    """Its middle is on the page, and still it is more off it than on it."""
    huge = box_of("circle", x=1, y=1, r=300, color="ink")
    before = GOOD.replace('\n[[box]]\nname = "who"', huge + '\n[[box]]\nname = "who"')
    assert list(problems_of(before)) == [
        "layout own.toml: box 1 (it): is 600 mm across, more than the page of 100 x 100 mm"
    ]


@pytest.mark.parametrize(
    "box",
    [
        box_of("line", x1=0, y1=0, x2=100, y2=0),
        box_of("line", x1=100, y1=0, x2=100, y2=100),
        box_of("circle", x=100, y=0, r=10, color="ink"),
        box_of("circle", x=0, y=100, r=4, color="ink"),
        box_of("rect", x=0, y=0, w=100, h=10, color="ink"),
    ],
)
def test_what_lies_along_the_edge_and_notches_in_it_are_fine(box: str) -> None:
    assert told_of(box) == []


OVER = "lies over the code of box 2 (code); put it before that box, or elsewhere"

TEXT = {"text": "{event}", "size": 9}


@pytest.mark.parametrize(
    "box",
    [
        box_of("text", x=10, y=30, w=50, h=20, **TEXT),
        box_of("paragraph", x=69, y=79, w=10, h=10, **TEXT),
        box_of("addons", x=40, y=50, w=10, h=10, size=9),
        box_of("rect", x=0, y=0, w=100, h=100, color="white"),
        box_of("rect", x=45, y=55, w=5, h=5, color="white"),
        box_of("circle", x=29, y=60, r=2, color="ink"),
        box_of("circle", x=50, y=60, r=1, color="ink"),
        box_of("line", x1=0, y1=60, x2=100, y2=60),
        box_of("line", x1=50, y1=50, x2=51, y2=51),
        box_of("line", x1=20, y1=60, x2=50, y2=30),
        box_of("line", x1=29.9, y1=0, x2=29.9, y2=100, width=2),
        box_of("qr", x=60, y=60, side=20),
    ],
)
def test_what_is_drawn_over_a_code_is_refused(box: str) -> None:
    assert told_of(box) == [OVER]


@pytest.mark.parametrize(
    "box",
    [
        box_of("text", x=70, y=40, w=20, h=20, **TEXT),
        box_of("rect", x=30, y=80, w=40, h=10, color="ink"),
        box_of("circle", x=28, y=38, r=2.8, color="ink"),
        box_of("line", x1=0, y1=60, x2=29, y2=60),
        box_of("line", x1=20, y1=49, x2=49, y2=20),
        box_of("line", x1=29.5, y1=0, x2=29.5, y2=100, width=2),
        box_of("qr", x=1, y=60, side=20),
    ],
)
def test_what_lies_beside_a_code_is_fine(box: str) -> None:
    assert told_of(box) == []


def test_sums_that_are_not_exact_are_no_overlap() -> None:
    """0.1 and 0.2 are a little more than 0.3."""
    beside = GOOD.replace("x = 30", "x = 0.3")
    assert 0.1 + 0.2 > 0.3
    assert told_of(box_of("rect", x=0.1, y=50, w=0.2, h=10, color="ink"), beside) == []


def test_a_box_that_goes_to_the_other_side_in_some_languages_must_not_lie_over_a_code_there() -> None:
    off_the_middle = GOOD.replace("x = 30", "x = 0").replace("y = 40", "y = 50")
    there = {"x": 80, "y": 60, "w": 20, "h": 10, **TEXT}
    assert told_of(box_of("text", **there), off_the_middle) == []
    assert told_of(box_of("text", **there, mirror=True), off_the_middle) == [OVER]


def test_what_is_drawn_before_a_code_or_instead_of_it_is_fine() -> None:
    ground = box_of("rect", x=0, y=0, w=100, h=100, color="ink")
    read_layout(
        GOOD.replace('\n[[box]]\nname = "who"', ground + '\n[[box]]\nname = "who"'), name="own", file="own.toml"
    )
    cover = {"x": 30, "y": 40, "w": 40, "h": 40, "color": "ink"}
    depending = GOOD.replace("side = 40", 'side = 40\nneeds = ["seat_row"]')
    assert told_of(box_of("rect", **cover, unless=["seat_row"]), depending) == []
    assert told_of(box_of("rect", **cover, unless=["seat_zone"]), depending) == [OVER]
    assert (
        told_of(box_of("rect", **cover, needs=["doors"]), GOOD.replace("side = 40", 'side = 40\nunless = ["doors"]'))
        == []
    )


def test_a_mistake_in_json_is_named_with_its_file_and_box() -> None:
    wrong = as_json(GOOD.replace("size = 12", "size = 0"))
    with pytest.raises(ConfigurationError) as caught:
        read_layout(wrong, name="own", file="own.json")
    assert caught.value.problems == ("layout own.json: box 1 (who): size must be from 1 to 200, found 0",)


def test_a_word_that_does_not_exist_is_named() -> None:
    problems = problems_of(GOOD.replace('"{holder}"', '"{label.rwo} {holder}"'))
    assert problems[0].startswith("layout own.toml: box 1 (who): text names a word that does not exist: 'label.rwo'")
