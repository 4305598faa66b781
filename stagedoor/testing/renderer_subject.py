"""What the conformance suite is asked about: a renderer, here and in another process, and what it draws."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import attrs

from stagedoor.errors import InvalidRequest
from stagedoor.rendering.api import Renderer, RenderRequest
from stagedoor.rendering.candidates import Candidate
from stagedoor.rendering.registry import Registry, check_candidates
from stagedoor.testing.renderer_samples import sample_requests


@attrs.frozen
class Subject:
    """The renderer under test, as something that makes one; the class itself will do.

    *make* must be importable by its name, for one check starts another process.
    A renderer that draws single positions only, such as a pass or a picture, must
    refuse a whole order with `InvalidRequest` and a message that begins with ``position``;
    then it is asked for single positions alone.

    Args:
        make: returns a new renderer.
        patience_s: how long it may take over requests that are far too large, all of them together.
        most_growth: by how many bytes what it makes of one of them may be larger than a usual document.
    """

    make: Callable[[], Any]
    patience_s: float = 120.0
    most_growth: int = 1 << 18

    def warmed(self) -> Renderer:
        """Return a renderer that is ready to draw."""
        renderer: Renderer = self.make()
        renderer.warm_up()
        return renderer

    def registry(self) -> Registry:
        """Return a registry of this renderer alone."""
        return check_candidates(
            [
                Candidate(
                    source="conformance suite",
                    distribution=type(self.make()).__module__,
                    distribution_version="",
                    load=lambda: [self.make()],
                )
            ]
        )


def requests_for(renderer: Renderer, holder: str = "Zoë Šimková") -> tuple[RenderRequest, ...]:
    """Return what *renderer* must draw: one position, and the whole order if it draws those."""
    single, whole = sample_requests(holder)
    return (single, whole) if draws_orders(renderer) else (single,)


def draws_orders(renderer: Renderer) -> bool:
    """Return whether *renderer* draws whole orders, and not single positions alone."""
    try:
        renderer.render(sample_requests()[1], no_check)
    except InvalidRequest as refused:
        return not str(refused).startswith("position")
    return True


def no_check() -> None:
    """Want the result."""


_ELSEWHERE = """
import importlib, sys, time
time.tzset()
made = importlib.import_module(sys.argv[1])
for name in sys.argv[2].split("."):
    made = getattr(made, name)
from stagedoor.testing import renderers
subject = renderers.Subject(made, most_growth=int(sys.argv[4]))
getattr(renderers, sys.argv[3])(subject)
"""


def elsewhere(subject: Subject, function: str, *, patience_s: float | None = None) -> str:
    """Run *function* of `stagedoor.testing.renderers` in another process, and return what it prints.

    Raises:
        TimeoutExpired: it took too long; it has been ended, and what it had printed is in the exception.
    """
    module, name = subject.make.__module__, subject.make.__qualname__
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "4242",
        "TZ": "Pacific/Auckland",
        "SOURCE_DATE_EPOCH": "86400",
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(  # noqa: S603 - this interpreter, with a program that stands above
        [sys.executable, "-c", _ELSEWHERE, module, name, function, str(subject.most_growth)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience_s,
    )
    assert done.returncode == 0, f"it failed in another process: {done.stderr[-500:]}"
    return done.stdout.strip()
