# /// script
# requires-python = ">=3.11"
# dependencies = ["nox[uv]>=2025.5"]
# ///
"""What can be done with this checkout; ``python3 noxfile.py -l`` lists it.

Run as a script this brings everything it needs itself and then starts nox with
the same arguments: nox, uv, a free-threaded CPython 3.14, a Redis server (see
`bootstrap`). An installed ``nox`` and ``uv run noxfile.py`` do the same sessions.

    python3 noxfile.py -s demo
    python3 noxfile.py -s tests -- tests/orders -k refund
"""

import sys
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 - this file is what an older python3 is given to run
    raise SystemExit(f"stagedoor: this python3 is {sys.version.split()[0]}; it has to be 3.11 or later")

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # nox loads this file by its path, and does not look beside it

import bootstrap  # noqa: E402 - only after the version was looked at, and from beside this file

if __name__ == "__main__":
    bootstrap.main(sys.argv[1:], HERE / "noxfile.py")

import hashlib  # noqa: E402 - as a script, this file has ended above
import os  # noqa: E402 - as above
import shutil  # noqa: E402 - as above
import tarfile  # noqa: E402 - as above

import nox  # noqa: E402 - there is no nox before the set-up above has run

PYTHON = bootstrap.interpreter_for_sessions(sys.argv[1:], os.environ, HERE)
CONSTRAINTS = "constraints.txt"
STAMP = ".stagedoor-installed"
ON_ALL_CORES = ("-n", "auto", "--maxprocesses", "8", "--dist", "worksteal")
DEMO = ("--orders", "300", "--refund-share", "0.2")
EDITABLE = ("-e", ".[test]", "-e", "./renderers")
EDITABLE_WITH_ALL = ("-e", ".[postgres,test]", "-e", "./renderers")

nox.needs_version = ">=2025.5"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.download_python = "never"  # the interpreter was brought above
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = True  # a session that was skipped must not look like one that passed
nox.options.sessions = ["tests", "lint", "types", "arch", "docs"]


# -- installing ---------------------------------------------------------------


def plugin_projects() -> list[Path]:
    """Return the renderer packages that the tests install like anybody's."""
    return sorted(project.parent for project in Path("tests/plugins").glob("*/pyproject.toml"))


def installed_key(what: tuple[str, ...]) -> str:
    """Return a digest of all that decides what an installation of *what* brings."""
    digest = hashlib.sha256(repr((what, PYTHON)).encode())
    files = ["pyproject.toml", "renderers/pyproject.toml", CONSTRAINTS]
    for file in [*map(Path, files), *(project / "pyproject.toml" for project in plugin_projects())]:
        digest.update(f"{file}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def install(session: nox.Session, *what: str) -> None:
    """Install *what*, bound to the constraints, unless this environment has it already."""
    stamp = Path(session.virtualenv.location) / STAMP
    key = installed_key(what)
    if stamp.is_file() and stamp.read_text("utf-8") == key:
        session.log("installed already")
        return
    session.log("installing; this takes a moment the first time")
    stamp.unlink(missing_ok=True)
    renew: list[str] = []
    if session.venv_backend == "uv":
        # uv takes a local package for unchanged where only its entry points changed.
        renew = ["--reinstall-package", "stagedoor", "--reinstall-package", "stagedoor-renderers"]
    else:
        # An older pip takes wheels for the stable ABI, which a free-threaded build cannot load.
        session.install("pip>=26")
    env = bootstrap.certificates(os.environ) | {"PIP_USER": "0"}
    session.install("-c", CONSTRAINTS, "--build-constraint", CONSTRAINTS, *renew, *what, env=env)
    stamp.write_text(key, "utf-8")


def install_all(session: nox.Session, *more: str) -> None:
    """Install both distributions from the checkout, the tests' plugins, and what tests run on."""
    plugins = [word for project in plugin_projects() for word in ("-e", f"./{project}")]
    install(session, *EDITABLE_WITH_ALL, *plugins, "--group", "lint", *more)


def without_settings() -> dict[str, str | None]:
    """Return what takes the caller's own settings out of a session: tests start from the defaults."""
    kept = ("STAGEDOOR_PYTHON", "STAGEDOOR_TEST_")
    return {name: None for name in os.environ if name.startswith("STAGEDOOR_") and not name.startswith(kept)}


def run_pytest(session: nox.Session, *arguments: str, env: dict[str, str | None] | None = None) -> None:
    """Run pytest, and give it the time to end what it started when it is interrupted."""
    session.run(
        *("python", "-m", "pytest", *arguments),
        env=without_settings() | (env or {}),
        interrupt_timeout=20,
        terminate_timeout=10,
    )


# -- the two commands ---------------------------------------------------------


@nox.session(python=PYTHON)
def demo(session: nox.Session) -> None:
    """Sell, refund and print tickets with real parts on this machine, and count what came out."""
    install(session, *EDITABLE)
    session.run(
        *("python", "-m", "stagedoor", "demo", *(session.posargs or DEMO)),
        interrupt_timeout=20,
        terminate_timeout=10,
    )


@nox.session(python=PYTHON)
def tests(session: nox.Session) -> None:
    """Run all tests on all cores, or those named after "--"."""
    install_all(session)
    run_pytest(session, *(session.posargs or ON_ALL_CORES))


# -- more tests ---------------------------------------------------------------


@nox.session(python=PYTHON)
def redis(session: nox.Session) -> None:
    """Run the broker's tests against every redis-server and valkey-server found here."""
    install_all(session)
    servers = bootstrap.redis_servers(os.environ.get("PATH", os.defpath))
    if not servers:
        session.error("there is no redis-server and no valkey-server on PATH or below /opt")
    for server in servers:
        session.run(server, "--version", external=True)
        run_pytest(session, "tests/broker", *session.posargs, env={"STAGEDOOR_TEST_REDIS_SERVER": server})


@nox.session(python=PYTHON)
def lint(session: nox.Session) -> None:
    """Look for what ruff knows to be wrong, and for what is not formatted."""
    install(session, "--group", "lint")
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check")


@nox.session(python=PYTHON)
def types(session: nox.Session) -> None:
    """Check every type, in the tests as well, with mypy as strict as it can be."""
    install_all(session)
    session.run("mypy", "stagedoor", "renderers/stagedoor_renderers", "tests", *session.posargs)
    session.run("mypy", "--python-version", "3.11", "bootstrap.py", "noxfile.py")
    for project in plugin_projects():
        packages = [path.parent.name for path in sorted(project.glob("*/__init__.py"))]
        arguments = [word for package in packages for word in ("-p", package)]
        session.run("mypy", *arguments, env={"MYPYPATH": str(project)})


@nox.session(python=PYTHON)
def arch(session: nox.Session) -> None:
    """Check that the imports run one way, and that this is really checked."""
    install_all(session)
    session.run("lint-imports", "--no-logo")
    run_pytest(session, "tests/architecture", *session.posargs)


@nox.session(python=PYTHON)
def cover(session: nox.Session) -> None:
    """Run the tests and say which lines none of them reaches."""
    install_all(session)
    session.run("coverage", "erase")
    env = without_settings()
    session.run("coverage", "run", "-m", "pytest", *session.posargs, env=env, interrupt_timeout=20)
    session.run("coverage", "combine", "--quiet")
    # A part of the tests is not asked to reach what only the whole of them does.
    session.run("coverage", "report", *(["--fail-under=0"] if session.posargs else []))


@nox.session(python=PYTHON)
def docs(session: nox.Session) -> None:
    """Try what the README and the guides say."""
    if not Path("tests/docs").is_dir():
        session.log("there is no tests/docs: nothing to try")
        return
    install_all(session)
    run_pytest(session, "tests/docs", *session.posargs)


# -- packages and figures -----------------------------------------------------


def build_distribution(session: nox.Session, project: Path, into: Path) -> Path:
    """Build the sdist of *project*, and its wheel out of that sdist; return the wheel."""
    before = set(into.glob("*"))
    with session.chdir(project):
        session.run("hatchling", "build", "-t", "sdist", "-d", str(into))
    (archive,) = set(into.glob("*.tar.gz")) - before
    unpacked = Path(session.create_tmp()).resolve() / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    with tarfile.open(archive) as file:
        file.extractall(unpacked, filter="data")
    with session.chdir(next(unpacked.iterdir())):
        session.run("hatchling", "build", "-t", "wheel", "-d", str(into))
    (wheel,) = set(into.glob("*.whl")) - before
    return wheel


def install_wheels(session: nox.Session, wheels: list[Path], environment: Path) -> str:
    """Install *wheels* and what they ask for into a new environment; return its interpreter."""
    python = str(environment / "bin" / "python")
    if session.venv_backend == "uv":
        session.run("uv", "venv", "--quiet", "--clear", "-p", PYTHON, str(environment), external=True)
        pip = ["uv", "pip", "install", "--quiet", "--python", python]
    else:
        session.run(PYTHON, "-m", "venv", "--clear", str(environment), external=True)
        pip = [python, "-m", "pip", "install", "--quiet"]
        session.run(*pip, "pip>=26", external=True)
    env = bootstrap.certificates(os.environ)
    session.run(*pip, "-c", CONSTRAINTS, *map(str, wheels), env=env, external=True)
    return python


@nox.session(python=PYTHON)
def build(session: nox.Session) -> None:
    """Build both packages into dist/, and try the wheels in a new environment outside the checkout."""
    dist = HERE / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    install(session, "hatchling")
    wheels = [build_distribution(session, project, dist) for project in (HERE, HERE / "renderers")]
    outside = Path(session.create_tmp()).resolve()
    python = install_wheels(session, wheels, outside / "wheels")
    with session.chdir(outside):
        session.run(python, "-m", "stagedoor", "--help", env=without_settings(), external=True)
        session.run(python, "-m", "stagedoor", "renderers", env=without_settings(), external=True)


@nox.session(python=PYTHON)
def bench(session: nox.Session) -> None:
    """Measure; the figures are ratios within one run."""
    if not Path("tests/bench").is_dir():
        session.log("there is no tests/bench: nothing to measure")
        return
    install_all(session)
    session.run("python", "-m", "tests.bench", *session.posargs, env=without_settings(), interrupt_timeout=20)


# -- the long way ---------------------------------------------------------------


@nox.session(python=PYTHON)
def onsale(session: nox.Session) -> None:
    """Play an on-sale night of 12,000 orders, relay a backlog of 300,000 rows, outlast outages of a minute."""
    install_all(session)
    sizes = {
        "STAGEDOOR_TEST_ONSALE_ORDERS": "12000",
        "STAGEDOOR_TEST_BACKLOG_ROWS": "300000",
        "STAGEDOOR_TEST_OUTAGE_S": "60",
    }
    env: dict[str, str | None] = {name: os.environ.get(name, size) for name, size in sizes.items()}
    patient = ("-o", "faulthandler_timeout=3600")
    long = ("tests/onsale", "tests/relay/test_backlog.py", "tests/process/test_outage.py")
    run_pytest(session, *long, *patient, *session.posargs, env=env)
