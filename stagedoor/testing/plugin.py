"""The pytest plugin: replays of fixtures in any project's tests.

    def test_our_cases(stagedoor_replay):
        stagedoor_replay("fixtures/refund-while-rendering", shuffle=10)

pytest imports this module in every run of every project that has Stagedoor
installed, so it imports next to nothing before the fixture is asked for.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from stagedoor.replay import ReplayResult

__all__ = ["Replay"]

Replay = Callable[..., "list[ReplayResult]"]
"""What the fixture `stagedoor_replay` is: see there."""


@pytest.fixture(scope="session")
def stagedoor_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the session's private Redis, started when it is first needed; override it to use another."""
    from stagedoor.broker.private_server import PrivateRedis, find_server  # noqa: PLC0415 - see the module
    from stagedoor.errors import ConfigurationError  # noqa: PLC0415 - as above

    try:
        program = find_server()
    except ConfigurationError as error:
        pytest.skip(str(error))
    with PrivateRedis(tmp_path_factory.mktemp("stagedoor") / "redis.log", program=program) as server:
        yield server.url


@pytest.fixture(scope="session")
def stagedoor_plugins() -> Sequence[str]:
    """Modules with handlers or renderers, besides entry points; override it, with this scope, to name your own."""
    return ()


@pytest.fixture(scope="session")
def stagedoor_ticket_renderer() -> str:
    """The name of the renderer that draws tickets; override it to take another."""
    return "ticket-pdf"


@pytest.fixture(scope="session")
def stagedoor_parts(stagedoor_plugins: Sequence[str], stagedoor_ticket_renderer: str) -> Any:
    """What makes `stagedoor.replay.Parts` of an order book, loaded once; override it to run other handlers."""
    from stagedoor.cli.replay import parts_for  # noqa: PLC0415 - see the module

    return parts_for(stagedoor_plugins, stagedoor_ticket_renderer)


@pytest.fixture
def stagedoor_replay(stagedoor_redis: str, stagedoor_parts: Any) -> Replay:
    """Play fixtures against real handlers and a real Redis, and fail the test when one ends otherwise than expected.

    Call it with the path of a fixture, or of a folder of fixtures. ``shuffle`` says in how many
    other orders each is played besides the given one, ``limit_s`` how many seconds to wait for
    rest. It returns the results.
    """

    def replay(path: str | Path, *, shuffle: int = 3, limit_s: float = 30.0) -> "list[ReplayResult]":
        from stagedoor.replay import find_fixtures, load_fixture, replay_fixture  # noqa: PLC0415 - see the module

        results = [
            replay_fixture(load_fixture(folder), stagedoor_parts, redis_url=stagedoor_redis, seed=seed, limit_s=limit_s)
            for folder in find_fixtures([Path(path)])
            for seed in (None, *range(1, shuffle + 1))
        ]
        problems = [
            f"{result.fixture.name}, {result.order}: {difference}"
            for result in results
            for difference in result.differences
        ]
        if problems:
            pytest.fail("\n".join(problems), pytrace=False)
        return results

    return replay
