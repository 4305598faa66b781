"""A real Redis for what operators do to a namespace, and the command line run in this process."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from stagedoor.cli.app import run
from tests.broker.harness import RedisHarness

type Run = Callable[..., "Said"]


@attrs.frozen
class Said:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The one JSON object on stdout."""
        assert self.out.count("\n") == 1, self.out
        return json.loads(self.out)


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def either(request: pytest.FixtureRequest, redis_url: str, namespace: str) -> Iterator[RedisHarness]:
    """A namespace over both protocols."""
    harness = RedisHarness(redis_url, namespace, protocol=request.param)
    yield harness
    harness.close()


@pytest.fixture
def real(redis_url: str, namespace: str) -> Iterator[RedisHarness]:
    """A namespace on a real Redis."""
    harness = RedisHarness(redis_url, namespace, protocol=3)
    yield harness
    harness.close()


@pytest.fixture
def command(
    redis_url: str, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run a command on this test's namespace, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STAGEDOOR_REDIS_URL", redis_url)
    monkeypatch.setenv("STAGEDOOR_NAMESPACE", namespace)

    def call(*words: str) -> Said:
        code = run(words)
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call
