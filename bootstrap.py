"""Bring what the two commands need to a bare machine, then start nox.

`noxfile.py`, run as a script, calls `main`. It needs nothing but Python 3.11 and
Debian's packages, and leaves everything it makes in one folder of the cache,
``${XDG_CACHE_HOME:-~/.cache}/stagedoor``:

- ``tools-<key>``: a private virtual environment with nox and uv;
- ``cpython-<version>t``: a free-threaded CPython, if none was to be had otherwise;
- ``interpreters.json``: which interpreters were tried out and found good.

What is there is used, so a second start takes a fraction of a second. What is
made is made under a lock and moved into place whole: a set-up that was interrupted
leaves nothing that a later one takes for good, and two at once make it once.

Start reading at `prepare`.
"""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

SERIES = (3, 14)
"""The CPython that Stagedoor is built for; its free-threaded build is looked for."""

OLDEST = (3, 13)
"""The oldest one that STAGEDOOR_PYTHON may name: what pyproject.toml requires."""

PLAIN_NAME = "python3.14t"

TOOLS = ("nox", "uv")
OLDEST_NOX = 2025
READY = ".stagedoor-ready"
"""A folder of the cache without this file is unfinished and is made again."""

VENV_PACKAGES = ("python3-venv",)
REDIS_PACKAGES = ("redis-server",)
BUILD_PACKAGES = (
    "build-essential",
    "zlib1g-dev",
    "libssl-dev",
    "libsqlite3-dev",
    "libffi-dev",
    "libbz2-dev",
    "liblzma-dev",
    "pkg-config",
    "xz-utils",
)

COMPILED_FILES = 300
"""How many files one build compiles, about; only the progress line depends on it."""

INSTALLED_LINES = 1950
"""How many lines one installation prints, about; only the progress line depends on it."""

WITHOUT_REDIS = frozenset({"lint", "types", "arch", "build"})
"""Sessions that never speak to Redis, for which none is installed."""

ONLY_ASKING = frozenset({"-h", "--help", "--version", "-l", "--list", "--list-sessions", "--usage"})

CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")

CHECK = """
import ctypes, json, sqlite3, ssl, sys, zlib
print(json.dumps({
    "executable": sys.executable,
    "version": list(sys.version_info[:3]),
    "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
}))
"""


@dataclass(frozen=True)
class Source:
    """One release of CPython that may be built, and the SHA-256 of Debian's tarball of it."""

    version: str
    sha256: str

    @property
    def archive(self) -> str:
        """The file's name on the mirror."""
        return f"python3.14_{self.version}.orig.tar.xz"


SOURCES = (
    Source("3.14.7", "3b48dac8fb59f62eaa67ac83c1eb12bda1b7a08406dd286e252c11a66be27f81"),
    Source("3.14.6", "143b1dddefaec3bd2e21e3b839b34a2b7fb9842272883c576420d605e9f30c63"),
    Source("3.14.5", "7e32597b99e5d9a39abed35de4693fa169df3e5850d4c334337ffd6a19a36db6"),
    Source("3.14.4", "d923c51303e38e249136fc1bdf3568d56ecb03214efdef48516176d3d7faaef8"),
)


class SetupError(Exception):
    """The set-up cannot go on; the message says what was found and what to do.

    *code* is 2 where the person who runs it has to change something first, and 1
    where the world failed (no network, a compiler error).
    """

    def __init__(self, message: str, *, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class Unreachable(Exception):
    """A mirror gave no answer; the next one is asked."""


# -- what is said -------------------------------------------------------------


class Say:
    """Short lines on stderr; progress overwrites itself on a terminal.

    Elsewhere (CI, a file) progress is a line every `EVERY_S` seconds.
    """

    EVERY_S = 15.0

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._is_terminal = stream.isatty()
        self._shown = 0
        self._last = clock()

    def line(self, text: str) -> None:
        """Print *text* as lines of its own; those after the first stand alone, to be copied."""
        self._wipe()
        first, *others = text.splitlines()
        self._stream.write(f"stagedoor: {first}\n")
        for other in others:
            self._stream.write(f"    {other.strip()}\n")
        self._stream.flush()
        self._last = self._clock()

    def progress(self, text: str) -> None:
        """Show how far something is; may print nothing when it has just printed."""
        if not self._is_terminal:
            if self._clock() - self._last >= self.EVERY_S:
                self.line(text)
            return
        shown = f"stagedoor: {text}"[: shutil.get_terminal_size().columns - 1]
        self._stream.write("\r" + shown.ljust(self._shown))
        self._stream.flush()
        self._shown = len(shown)

    def _wipe(self) -> None:
        if self._shown:
            self._stream.write("\r" + " " * self._shown + "\r")
            self._shown = 0


def elapsed(seconds: float) -> str:
    """Return *seconds* as minutes and seconds, like ``1:04``."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


# -- the machine --------------------------------------------------------------


@dataclass(frozen=True)
class Finished:
    """A program that has ended: its exit code and all it printed."""

    code: int
    output: str


@dataclass(frozen=True)
class Machine:
    """What the set-up sees of the machine it runs on; tests put another in its place."""

    environ: Mapping[str, str]
    cache: Path
    checkout: Path
    is_root: bool
    has_ensurepip: bool
    say: Say

    def which(self, name: str) -> str | None:
        """Return the path of the program *name*, None if it is not on PATH."""
        return shutil.which(name, path=self.environ.get("PATH", os.defpath))

    def run(self, command: Sequence[str], *, timeout_s: float | None = None, **extra: str) -> Finished:
        """Run *command* to its end, with *extra* in its environment; it never raises."""
        try:
            done = subprocess.run(
                command,
                env=clean_environment(self.environ) | extra,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                check=False,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            return Finished(124, f"{command[0]} gave no answer within {timeout_s:g} s")
        except OSError as error:
            return Finished(127, f"{command[0]}: {error.strerror}")
        return Finished(done.returncode, done.stdout)


def this_machine(environ: Mapping[str, str], checkout: Path) -> Machine:
    """Return the machine that this process runs on."""
    return Machine(
        environ=environ,
        cache=cache_folder(environ),
        checkout=checkout,
        is_root=os.geteuid() == 0,
        has_ensurepip=importlib.util.find_spec("ensurepip") is not None,
        say=Say(sys.stderr),
    )


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the one folder that the set-up writes to."""
    base = environ.get("XDG_CACHE_HOME", "")
    # The specification of the variable: a relative path is to be ignored.
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "stagedoor"


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return *environ* without what leads another interpreter or make astray."""
    astray = {"PYTHONHOME", "PYTHONPATH", "PYTHON_GIL", "PYTHONSTARTUP", "MAKEFLAGS", "__PYVENV_LAUNCHER__"}
    return {name: value for name, value in environ.items() if name not in astray}


@contextlib.contextmanager
def one_at_a_time(machine: Machine) -> Iterator[None]:
    """Hold the cache's lock; the kernel gives it back whatever happens to us."""
    machine.cache.mkdir(parents=True, exist_ok=True)
    with (machine.cache / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            machine.say.line(f"another set-up is at work in {machine.cache}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_ready(folder: Path) -> bool:
    """Whether *folder* was finished; an interrupted set-up leaves it without the mark."""
    return (folder / READY).is_file()


def last_lines(text: str, count: int = 15) -> str:
    """Return the last *count* lines that say something."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-count:])


def redis_servers(path: str, roots: Sequence[Path] = (Path("/opt"), Path("/usr/local"), Path("/usr/lib"))) -> list[str]:
    """Return every Redis or Valkey server on *path* and in versioned folders below *roots*, each once.

    One program under two names counts once, but keeps the name it was found by:
    what it does depends on the name it is called by.
    """
    names = ("redis-server", "valkey-server")
    folders = [Path(entry) for entry in path.split(os.pathsep) if entry]
    below = [folder for root in roots for kind in ("redis*", "valkey*") for folder in sorted(root.glob(kind))]
    places = [*folders, *below, *(folder / "bin" for folder in below), *(folder / "src" for folder in below)]
    found: dict[Path, str] = {}
    for place in places:
        for name in names:
            program = place / name
            if program.is_file() and os.access(program, os.X_OK):
                found.setdefault(program.resolve(), str(program))
    return list(found.values())


# -- Debian's packages --------------------------------------------------------


def apt_line(packages: Sequence[str]) -> str:
    """Return the one line that a person without root's rights has to run."""
    return f"sudo apt-get install -y --no-install-recommends {shlex.join(packages)}"


def missing_packages(machine: Machine, wanted: Sequence[str]) -> list[str]:
    """Return which of *wanted* dpkg does not call installed, in their order."""
    form = "${Package} ${db:Status-Status}\n"
    listed = machine.run(["dpkg-query", "-W", "-f", form, *wanted])
    installed = {line.split()[0] for line in listed.output.splitlines() if line.endswith(" installed")}
    return [name for name in wanted if name not in installed]


def require_packages(machine: Machine, packages: Sequence[str]) -> None:
    """Install *packages* if we may, otherwise say the one line that does.

    Raises:
        SetupError: not root, no apt here, or apt could not do it.
    """
    if not packages:
        return
    if machine.which("apt-get") is None:
        names = " ".join(packages)
        message = f"this machine lacks what Debian calls: {names}\nThere is no apt-get here; install them another way."
        raise SetupError(message, code=2)
    if not machine.is_root:
        raise SetupError(f"some packages are missing. Run this, then try again:\n{apt_line(packages)}", code=2)
    machine.say.line(f"installing Debian's packages: {' '.join(packages)}")
    patient = ["-o", "DPkg::Lock::Timeout=300"]  # a new machine may be busy with updates of its own
    install = ["apt-get", "install", "-y", "--no-install-recommends", *patient, *packages]
    done = machine.run(install, DEBIAN_FRONTEND="noninteractive")
    if done.code:
        # A new machine's package lists are empty or old.
        machine.run(["apt-get", "update"], DEBIAN_FRONTEND="noninteractive")
        done = machine.run(install, DEBIAN_FRONTEND="noninteractive")
    if done.code:
        raise SetupError(f"apt-get could not install {' '.join(packages)}; it said last:\n{last_lines(done.output)}")


def mirrors(targets: str) -> list[str]:
    """Return the package mirrors in what ``apt-get indextargets`` printed, each once, in its order."""
    found = [line.strip().rstrip("/") for line in targets.splitlines()]
    # apt's own transports (mirror+, tor+, cdrom:) are nothing that we could open.
    return list(dict.fromkeys(uri for uri in found if uri.startswith(("http://", "https://", "file:"))))


def source_url(mirror: str, source: Source) -> str:
    """Return where *mirror* keeps the tarball of *source*."""
    return f"{mirror.rstrip('/')}/pool/main/p/python3.14/{source.archive}"


def apt_proxies(config: str) -> dict[str, str]:
    """Return the proxies that apt is told to use, from what ``apt-config dump`` printed."""
    found = re.findall(r'^Acquire::(http|https)::Proxy "([^"]+)";$', config, flags=re.MULTILINE | re.IGNORECASE)
    return {scheme.lower(): address for scheme, address in found if address.upper() != "DIRECT"}


def list_mirrors(machine: Machine) -> list[str]:
    """Ask apt where this machine's packages come from.

    Raises:
        SetupError: there is no apt here, or it knows no mirror that we can open.
    """
    ask = ["apt-get", "indextargets", "--format", "$(REPO_URI)"]
    # The second form answers on a machine whose package lists were never fetched.
    for command in (ask, [*ask, "--no-release-info"]):
        done = machine.run(command)
        if done.code == 0 and mirrors(done.output):
            return mirrors(done.output)
    message = (
        f"no {PLAIN_NAME} was found, and apt names no Debian mirror here that could have the source of one.\n"
        f"Install a free-threaded CPython {dotted(SERIES)} and set STAGEDOOR_PYTHON to its path."
    )
    raise SetupError(message, code=2)


# -- interpreters -------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """An interpreter that may be there: *origin* says in words who named it."""

    origin: str
    path: Path
    is_demanded: bool = False


@dataclass(frozen=True)
class Verdict:
    """What an interpreter said of itself when it was tried; *problem* is empty if it will do."""

    executable: str
    version: tuple[int, ...] = ()
    has_gil: bool = False
    problem: str = ""


def dotted(version: Sequence[int]) -> str:
    """Return a version as it is written."""
    return ".".join(str(part) for part in version)


def interpreter_in(prefix: Path) -> Path:
    """Return where an installation under *prefix* has its interpreter."""
    return prefix / "bin" / PLAIN_NAME


def cached_prefix(cache: Path, source: Source) -> Path:
    """Return where the build of *source* is kept."""
    return cache / f"cpython-{source.version}t"


def candidates(machine: Machine) -> list[Candidate]:
    """Return the interpreters that are worth a try, in the order of preference.

    What uv manages and what has to be built come after these.
    """
    named = machine.environ.get("STAGEDOOR_PYTHON", "")
    if named:
        # Whoever names one wants that one: no other is looked for.
        path = Path(machine.which(named) or named).expanduser()
        return [Candidate("STAGEDOOR_PYTHON", path, is_demanded=True)]
    found = []
    if on_path := machine.which(PLAIN_NAME):
        found.append(Candidate("PATH", Path(on_path)))
    for source in SOURCES:
        prefix = cached_prefix(machine.cache, source)
        if is_ready(prefix):
            found.append(Candidate("the cache", interpreter_in(prefix)))
    return found


def judge(path: Path, answer: Finished, *, is_demanded: bool) -> Verdict:
    """Decide from the output of `CHECK` whether the interpreter at *path* will do."""
    if answer.code:
        said = answer.output.strip().splitlines()
        return Verdict(str(path), problem=f"it does not run as needed: {said[-1] if said else f'exit {answer.code}'}")
    try:
        facts = json.loads(answer.output)
    except ValueError:
        return Verdict(str(path), problem="what it printed is not the answer of a Python interpreter")
    version, has_gil = tuple(facts["version"]), bool(facts["gil"])
    problem = ""
    if version < OLDEST:
        problem = f"it is Python {dotted(version)}; {dotted(OLDEST)} or later is needed"
    elif not is_demanded and version[:2] != SERIES:
        problem = f"it is Python {dotted(version)}, not {dotted(SERIES)}"
    elif not is_demanded and has_gil:
        problem = "its GIL is on"
    return Verdict(facts["executable"] or str(path), version, has_gil, problem)


def try_out(machine: Machine, candidate: Candidate) -> Verdict:
    """Run the interpreter of *candidate* and judge it; a good verdict is remembered for as long as the file stays."""
    try:
        stat = candidate.path.stat()
    except OSError as error:
        return Verdict(str(candidate.path), problem=f"{error.strerror}")
    mark = f"{stat.st_mtime_ns} {stat.st_size} {candidate.is_demanded} {system_mark()}"
    known = read_records(machine).get(str(candidate.path), {})
    if known.get("mark") == mark and Path(known["executable"]).exists():
        return Verdict(known["executable"], tuple(known["version"]), known["gil"])
    answer = machine.run([str(candidate.path), "-c", CHECK], timeout_s=60)
    verdict = judge(candidate.path, answer, is_demanded=candidate.is_demanded)
    if not verdict.problem:
        record = {"mark": mark, "executable": verdict.executable, "version": verdict.version, "gil": verdict.has_gil}
        write_record(machine, str(candidate.path), record)
    return verdict


def system_mark(release: Path = Path("/etc/os-release")) -> str:
    """Return what changes when the system is upgraded, and with it the libraries that a build is linked to."""
    try:
        return str(release.stat().st_mtime_ns)
    except OSError:
        return ""


def read_records(machine: Machine) -> dict[str, Any]:
    """Return what earlier set-ups found out about interpreters, by path; unreadable is the same as none."""
    try:
        records = json.loads((machine.cache / "interpreters.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return records if isinstance(records, dict) else {}


def write_record(machine: Machine, path: str, record: Mapping[str, object]) -> None:
    """Remember *record*; two writers at once lose one record, never the file."""
    machine.cache.mkdir(parents=True, exist_ok=True)
    kept = {known: value for known, value in read_records(machine).items() if Path(known).exists()}
    descriptor, draft = tempfile.mkstemp(prefix="interpreters-", dir=machine.cache)
    with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - Path cannot open a descriptor
        json.dump(kept | {path: record}, file, indent=1)
    Path(draft).replace(machine.cache / "interpreters.json")


def find_interpreter(machine: Machine) -> Verdict | None:
    """Return the first interpreter that is there and will do.

    Raises:
        SetupError: STAGEDOOR_PYTHON names one that will not.
    """
    for candidate in candidates(machine):
        verdict = try_out(machine, candidate)
        if not verdict.problem:
            return verdict
        if candidate.is_demanded:
            message = (
                f"STAGEDOOR_PYTHON is {candidate.path}: {verdict.problem}\n"
                f"Set it to a free-threaded CPython {dotted(SERIES)}, or unset it and one is found or made."
            )
            raise SetupError(message, code=2)
        machine.say.line(f"{candidate.path} (from {candidate.origin}) is not used: {verdict.problem}")
    return None


def interpreter_of_uv(machine: Machine, uv: str, *, may_fetch: bool) -> Verdict | None:
    """Return the interpreter that uv manages, fetched now if it *may*; None where uv has none."""
    name = f"{dotted(SERIES)}t"
    if may_fetch:
        machine.say.line(f"no free-threaded CPython {dotted(SERIES)} is here yet; asking uv for one")
        fetched = machine.run(
            [uv, "python", "install", "--no-bin", name], timeout_s=900, **certificates(machine.environ)
        )
        if fetched.code:
            said = [line.strip() for line in fetched.output.splitlines() if line.strip()]
            machine.say.line(f"uv has none to give: {said[-1] if said else f'exit {fetched.code}'}")
            return None
    found = machine.run([uv, "python", "find", "--managed-python", "--no-python-downloads", name], timeout_s=60)
    if found.code or not found.output.strip():
        return None
    verdict = try_out(machine, Candidate("uv", Path(found.output.strip().splitlines()[-1])))
    return None if verdict.problem else verdict


def certificates(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what makes uv trust what this machine trusts; uv's own list does not know a company's proxy."""
    if "UV_SYSTEM_CERTS" in environ or not CERTIFICATES.exists():
        return {}
    return {"UV_SYSTEM_CERTS": "1"}


# -- building one -------------------------------------------------------------


def build_interpreter(machine: Machine) -> Verdict:
    """Build a free-threaded CPython into the cache.

    The caller holds the lock. The prefix is baked into what is built, so it is
    configured for its final place, installed below a scratch folder, tried there,
    and moved into place in one step.

    Raises:
        SetupError: no source could be fetched, or it does not build here.
    """
    if re.search(r"\s", str(machine.cache)):
        message = f"the cache is {machine.cache}, and make cannot build below a path with blanks: set XDG_CACHE_HOME."
        raise SetupError(message, code=2)
    started = time.monotonic()
    clear_scratch(machine.cache)
    (machine.cache / "build.log").unlink(missing_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="build-", dir=machine.cache))
    try:
        source = fetch_source(machine, scratch)
        prefix = cached_prefix(machine.cache, source)
        staged = compile_source(machine, scratch, source, prefix)
        mark_finished(machine, staged, source)
        if prefix.exists():
            prefix.rename(scratch / "unfinished")
        staged.rename(prefix)
    finally:
        clear_scratch(machine.cache)
    machine.say.line(f"built {interpreter_in(prefix)} in {elapsed(time.monotonic() - started)}")
    verdict = try_out(machine, Candidate("the cache", interpreter_in(prefix)))
    if verdict.problem:
        raise SetupError(f"{interpreter_in(prefix)} was built, but {verdict.problem}")
    return verdict


def clear_scratch(cache: Path) -> None:
    """Remove the scratch folders of all builds; the caller holds the lock.

    One that was killed may still have a compiler at work, which writes on into a
    folder that is being removed: what is left then goes the next time.
    """
    for folder in cache.glob("build-*/"):
        shutil.rmtree(folder, ignore_errors=True)


def compile_source(machine: Machine, scratch: Path, source: Source, prefix: Path) -> Path:
    """Configure, compile and install *source* for *prefix*; return where it lies for now, below *scratch*."""
    machine.say.line(f"building CPython {source.version} without the GIL, once; this takes a few minutes")
    logged = LoggedRuns(machine, machine.cache / "build.log")
    tree, stage = scratch / f"Python-{source.version}", scratch / "stage"
    logged.run("unpacking", ["tar", "-xJf", str(scratch / source.archive)], scratch)
    options = ["--disable-gil", "--with-ensurepip=no", "--disable-test-modules"]
    logged.run("configuring", ["./configure", "-q", f"--prefix={prefix}", *options], tree)
    make = ["make", f"-j{processors()}"]
    logged.run("compiling", make, tree, marker=b" -c ", total=COMPILED_FILES)
    logged.run("installing", ["make", "install", f"DESTDIR={stage}"], tree, marker=b"\n", total=INSTALLED_LINES)
    return stage / prefix.relative_to("/")


def mark_finished(machine: Machine, staged: Path, source: Source) -> None:
    """Try the interpreter below *staged*, and only if it will do, mark its folder as finished."""
    interpreter = interpreter_in(staged)
    verdict = judge(interpreter, machine.run([str(interpreter), "-c", CHECK], timeout_s=60), is_demanded=False)
    if verdict.problem:
        log = machine.cache / "build.log"
        raise SetupError(f"CPython {source.version} was built, but {verdict.problem}\nThe log of the build is {log}")
    (staged / READY).write_text(f"CPython {source.version}, free-threaded\n", "utf-8")


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class LoggedRuns:
    """Runs long programs one after the other: output into one log, progress for the person who waits."""

    machine: Machine
    log: Path

    def run(self, title: str, command: Sequence[str], cwd: Path, *, marker: bytes = b"", total: int = 0) -> None:
        """Run *command* in *cwd*; each line with *marker* is one of *total* steps.

        Raises:
            SetupError: it failed; the message has the log's place and its last lines.
        """
        started = time.monotonic()
        steps = 0
        environ = clean_environment(self.machine.environ) | {"LC_ALL": "C"}
        with self.log.open("ab") as log, started_alone(command, cwd, environ) as process:
            log.write(f"\n$ {shlex.join(command)}\n".encode())
            for chunk in chunks(process):
                log.write(chunk)
                steps += chunk.count(marker) if marker else 0
                share = f"  {min(99, 100 * steps // total):2d} %" if total else ""
                self.machine.say.progress(f"{title}{share}  {elapsed(time.monotonic() - started)}")
            code = process.wait()
        if code:
            tail = last_lines(self.log.read_bytes()[-20_000:].decode("utf-8", "replace"))
            raise SetupError(f"{title} failed (exit {code}); the log is {self.log}, its last lines:\n{tail}")
        self.machine.say.line(f"{title}: done in {elapsed(time.monotonic() - started)}")


@contextlib.contextmanager
def started_alone(command: Sequence[str], cwd: Path, environ: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start *command* in a process group of its own, and end the whole group however the block is left."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout:
            process.stdout.close()


def chunks(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """Yield what *process* prints as it comes, and nothing (``b""``) once a second in between."""
    if process.stdout is None:
        return
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(timeout=1.0):
                yield b""
            elif chunk := os.read(process.stdout.fileno(), 1 << 16):
                yield chunk
            else:
                return


# -- fetching its source ------------------------------------------------------


def fetch_source(machine: Machine, folder: Path) -> Source:
    """Put the newest known tarball that a mirror has into *folder*, checked.

    Raises:
        SetupError: no mirror has any, none can be reached, or what came is not what was built and tested.
    """
    dump = machine.run(["apt-config", "dump"])
    proxies = urllib.request.getproxies() or apt_proxies(dump.output)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
    known = list_mirrors(machine)
    silent: dict[str, str] = {}
    for source in SOURCES:
        for mirror in known:
            if mirror in silent:
                continue
            try:
                if download(machine, opener, source_url(mirror, source), folder / source.archive):
                    check_source(source, folder / source.archive)
                    return source
            except Unreachable as error:
                silent[mirror] = str(error)
    tried = "\n".join(f"{mirror}: {silent.get(mirror, 'has none of them')}" for mirror in known)
    raise SetupError(
        f"no source of CPython {', '.join(source.version for source in SOURCES)} could be fetched:\n{tried}\n"
        "Look at the network and at apt's sources, or install a free-threaded CPython "
        f"{dotted(SERIES)} and set STAGEDOOR_PYTHON to its path.",
    )


def download(machine: Machine, opener: urllib.request.OpenerDirector, url: str, target: Path) -> bool:
    """Fetch *url* into *target*; return False if the mirror does not have it.

    Raises:
        Unreachable: the mirror gave no answer, or broke off.
    """
    name = url.rpartition("/")[2]
    try:
        with opener.open(url, timeout=30) as answer, target.open("wb") as file:
            total = int(answer.headers.get("Content-Length") or 0)
            got = 0
            while piece := answer.read(1 << 18):
                file.write(piece)
                got += len(piece)
                machine.say.progress(f"fetching {name}  {got / 1e6:.1f} of {total / 1e6:.1f} MB")
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (403, 404, 410):
            return False
        raise Unreachable(f"answered {error.code} {error.reason}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise Unreachable(str(reason)) from None
    if got < total:
        raise Unreachable(f"broke off after {got} of {total} bytes of {name}")
    machine.say.line(f"fetched {url}")
    return True


def check_source(source: Source, archive: Path) -> None:
    """Refuse an *archive* that is not byte for byte the one this file names.

    Raises:
        SetupError: it is another one; nothing of it was unpacked.
    """
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found == source.sha256:
        return
    message = (
        f"{archive.name} is not what it should be, and is not used:\n"
        f"SHA-256 expected  {source.sha256}\nSHA-256 found     {found}\n"
        "The mirror, or something on the way to it, changed the file."
    )
    raise SetupError(message)


# -- nox and uv ---------------------------------------------------------------


@dataclass(frozen=True)
class Tools:
    """An interpreter that has nox, and uv's program."""

    python: str
    uv: str


def present_tools(machine: Machine) -> Tools | None:
    """Return the tools of the very interpreter that runs this (``uv run``, an installed nox), if it has both."""
    uv = find_uv(machine)
    if uv is None or importlib.util.find_spec("nox") is None:
        return None
    year = importlib.metadata.version("nox").split(".")[0]
    return Tools(sys.executable, uv) if year.isdigit() and int(year) >= OLDEST_NOX else None


def find_uv(machine: Machine) -> str | None:
    """Return uv's program: named by uv itself, beside this interpreter, or on PATH."""
    beside = Path(sys.executable).with_name("uv")
    if beside.is_file():
        return str(beside)
    return machine.which(machine.environ.get("UV") or "uv")


def tools_folder(machine: Machine) -> Path:
    """Return where the private nox and uv are kept; another version of anything is another folder."""
    text = (machine.checkout / "constraints.txt").read_text("utf-8")
    wanted = [line for line in text.splitlines() if line.partition("==")[0] in TOOLS]
    key = "\n".join([sys.version, str(Path(sys.executable).resolve()), *TOOLS, *wanted])
    return machine.cache / f"tools-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def private_tools(machine: Machine) -> Tools | None:
    """Return the tools in the cache, if an earlier set-up finished them."""
    folder = tools_folder(machine)
    return Tools(str(folder / "bin" / "python"), str(folder / "bin" / "uv")) if is_ready(folder) else None


def find_tools(machine: Machine) -> Tools | None:
    """Return nox and uv if they are there already."""
    return present_tools(machine) or private_tools(machine)


def make_tools(machine: Machine) -> Tools:
    """Put nox and uv into a virtual environment of their own.

    Raises:
        SetupError: they could not be installed.
    """
    with one_at_a_time(machine):
        if made_meanwhile := private_tools(machine):
            return made_meanwhile
        started = time.monotonic()
        folder = tools_folder(machine)
        machine.say.line(f"putting {' and '.join(TOOLS)} into {folder}")
        shutil.rmtree(folder, ignore_errors=True)
        python = str(folder / "bin" / "python")
        install = [python, "-m", "pip", "install", "--disable-pip-version-check"]
        constraints = str(machine.checkout / "constraints.txt")
        for command in ([sys.executable, "-m", "venv", str(folder)], [*install, "-c", constraints, *TOOLS]):
            done = machine.run(command, PIP_USER="0")
            if done.code:
                message = f"{' and '.join(TOOLS)} could not be installed (is there a network?); last lines:\n"
                raise SetupError(message + last_lines(done.output, 6))
        (folder / READY).touch()
        machine.say.line(f"{' and '.join(TOOLS)}: done in {elapsed(time.monotonic() - started)}")
    return Tools(python, str(folder / "bin" / "uv"))


# -- all of it ----------------------------------------------------------------


@dataclass(frozen=True)
class Wants:
    """What a call of nox needs: *is_asking* (``-l``, ``--help``) needs no interpreter of ours."""

    is_asking: bool
    redis: bool


def sessions_named(argv: Sequence[str]) -> list[str]:
    """Return the sessions that nox's arguments name; none means the default ones."""
    named: list[str] = []
    is_naming = False
    for word in argv:
        if word == "--":
            break
        option, _, value = word.partition("=")
        if option in ("-s", "-e", "--session", "--sessions"):
            is_naming = not value
            named += [value] if value else []
        elif word.startswith("-"):
            is_naming = False
            named += [word[2:]] if word[:2] in ("-s", "-e") else []
        elif is_naming:
            named.append(word)
    return named


def read_wants(argv: Sequence[str]) -> Wants:
    """Decide from nox's arguments what has to be there before it starts."""
    words = list(argv[: argv.index("--")] if "--" in argv else argv)
    named = sessions_named(words)
    return Wants(
        is_asking=any(word in ONLY_ASKING for word in words),
        redis=not named or not WITHOUT_REDIS.issuperset(named),
    )


def missing_redis(machine: Machine, wants: Wants) -> list[str]:
    """Return the package that brings a Redis server, if one is wanted and there is none."""
    if not wants.redis or machine.which("redis-server") or machine.which("valkey-server"):
        return []
    return list(REDIS_PACKAGES)


def require_venv(machine: Machine, wants: Wants) -> None:
    """Bring what a virtual environment is made with.

    Without root's rights the one line that is shown has to be enough, so it names
    all that may be needed later as well.
    """
    packages = list(VENV_PACKAGES)
    if not wants.is_asking:
        packages += missing_redis(machine, wants)
        if not machine.is_root and find_interpreter(machine) is None:
            packages += missing_packages(machine, BUILD_PACKAGES)
    require_packages(machine, packages)


def require_interpreter(machine: Machine, wants: Wants, uv: str | None) -> Verdict:
    """Find an interpreter or make one, and a Redis server on the way.

    Raises:
        SetupError: neither is to be had.
    """
    found = find_interpreter(machine) or (interpreter_of_uv(machine, uv, may_fetch=False) if uv else None)
    redis = missing_redis(machine, wants)
    if found:
        require_packages(machine, redis)
        return found
    with one_at_a_time(machine):
        found = find_interpreter(machine) or (interpreter_of_uv(machine, uv, may_fetch=True) if uv else None)
        require_packages(machine, redis + ([] if found else missing_packages(machine, BUILD_PACKAGES)))
        return found or build_interpreter(machine)


def prepare(machine: Machine, wants: Wants) -> tuple[Tools, Verdict | None]:
    """Bring all that *wants* asks for: nox and uv, the interpreter, a Redis server.

    Returns:
        The tools, and the interpreter for the sessions; None if nobody asked for one.

    Raises:
        SetupError: something is missing that cannot be brought from here.
    """
    tools = find_tools(machine)
    if tools is None:
        if not machine.has_ensurepip:
            require_venv(machine, wants)
        tools = make_tools(machine)
    if wants.is_asking:
        return tools, None
    return tools, require_interpreter(machine, wants, tools.uv)


def interpreter_for_sessions(argv: Sequence[str], environ: Mapping[str, str], checkout: Path) -> str:
    """Return the absolute path of the interpreter that the sessions run on; for `noxfile.py` inside nox.

    Raises:
        SystemExit: it is not to be had; what to do was said.
    """
    machine = this_machine(environ, checkout)
    wants = read_wants(argv)
    with said_if_wrong(machine.say):
        if wants.is_asking:
            found = find_interpreter(machine)
            return found.executable if found else PLAIN_NAME
        return require_interpreter(machine, wants, find_uv(machine)).executable


@contextlib.contextmanager
def said_if_wrong(say: Say) -> Iterator[None]:
    """Turn what is foreseeable into a calm line and an exit code."""
    try:
        yield
    except SetupError as error:
        say.line(str(error))
        raise SystemExit(error.code) from None
    except KeyboardInterrupt:
        say.line("interrupted; what was half done will be done again next time")
        raise SystemExit(130) from None
    except OSError as error:
        say.line(f"the set-up could not go on: {error}")
        raise SystemExit(1) from None


def end_quietly(number: int, _frame: FrameType | None) -> None:
    """Unwind on SIGTERM, so that a compiler that was started ends with us."""
    raise SystemExit(128 + number)


def nox_environment(machine: Machine, interpreter: Verdict | None) -> dict[str, str]:
    """Return the environment that nox is started with."""
    astray = {"PYTHONHOME", "PYTHONPATH"}
    environ = {name: value for name, value in machine.environ.items() if name not in astray}
    if interpreter:
        environ["STAGEDOOR_PYTHON"] = interpreter.executable
    # The tools were just looked after; nox need not compare them once more.
    return environ | certificates(machine.environ) | {"NOX_SCRIPT_MODE": "none"}


def main(argv: Sequence[str], noxfile: Path) -> None:
    """Bring what is missing, then become ``nox`` with the same arguments.

    Raises:
        SystemExit: something is wrong; what and what to do was said on stderr.
    """
    machine = this_machine(os.environ, noxfile.parent)
    signal.signal(signal.SIGTERM, end_quietly)
    with said_if_wrong(machine.say):
        tools, interpreter = prepare(machine, read_wants(argv))
        if interpreter and interpreter.has_gil:
            machine.say.line(f"{interpreter.executable} has the GIL: all works, but tickets render on one core only")
        command = [tools.python, "-m", "nox", "-f", str(noxfile), *argv]
        os.execve(tools.python, command, nox_environment(machine, interpreter))  # noqa: S606 - no shell is the point
