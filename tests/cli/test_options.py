"""Every setting is a flag with its help, and bad ones are named all at once."""

import pytest

from stagedoor.cli.app import run
from stagedoor.cli.options import SECTIONS, flag_of
from stagedoor.settings import FIELDS

type Captured = pytest.CaptureFixture[str]


def test_the_worker_has_a_flag_for_every_setting_with_variable_and_default(capsys: Captured) -> None:
    assert run(["worker", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name, field in FIELDS.items():
        assert f"{flag_of(name)} " in shown
        assert f"{field.metadata['help']} [STAGEDOOR_{name.upper()}; default: " in shown
    assert "[STAGEDOOR_TICKETS_DIR; default: ./tickets]" in shown
    assert "[STAGEDOOR_FLOW_KEEP_S; default: 604800]" in shown
    assert "[STAGEDOOR_PLUGINS; default: none]" in shown
    assert "[STAGEDOOR_METRICS_PORT; default: off]" in shown


def test_the_sections_of_the_help_name_settings_that_there_are_and_each_once() -> None:
    named = [name for names in SECTIONS.values() for name in names]
    assert set(named) <= set(FIELDS)
    assert len(named) == len(set(named))


def test_all_bad_settings_are_named_at_once_with_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("STAGEDOOR_SLOT", "4")
    monkeypatch.setenv("STAGEDOOR_GRACE_S", "soon")
    assert run(["--slots", "0", "--namespace", "a b"]) == 2
    namespace = "take 1 to 32 letters, digits, '.', '_', '-', on Redis Cluster in braces"
    assert capsys.readouterr().err.splitlines() == [
        "stagedoor: STAGEDOOR_SLOT: there is no such setting; did you mean STAGEDOOR_SLOTS?",
        "stagedoor: STAGEDOOR_GRACE_S: 'soon' is not allowed; take a number of seconds from 2 to 86400",
        f"stagedoor: --namespace: 'a b' is not allowed; {namespace}",
        "stagedoor: --slots: '0' is not allowed; take a number of slots from 1 to 256",
    ]


def test_a_flag_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setenv("STAGEDOOR_NAMESPACE", "a b")
    assert run(["status", "--redis-url", "unix:///nowhere/redis.sock", "--namespace", "good"]) == 1
    assert "namespace" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:secret@h:6379/0\n",
        "redis://user:secret@h:nonsense",
        "http://user:secret@h",
        "redis://user:secret@127.0.0.1:1/0",
    ],
)
def test_no_message_shows_a_password(url: str, capsys: Captured) -> None:
    assert run(["status", "--redis-url", url]) in {1, 2}
    said = capsys.readouterr()
    assert said.err.startswith("stagedoor: ")
    assert "secret" not in said.err + said.out
