"""The set-up: what it looks for, what it makes, and how it says that it cannot."""

import hashlib
import io
import json
import os
import select
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import bootstrap
from bootstrap import (
    BUILD_PACKAGES,
    READY,
    Candidate,
    Finished,
    Machine,
    Say,
    SetupError,
    Source,
    Verdict,
    Wants,
)

CHECKOUT = Path(bootstrap.__file__).parent
ALL = Wants(is_asking=False, redis=True)


class Clock:
    """A clock that is moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class FakeMachine(Machine):
    """A machine that has the *programs* it is given and answers as it is told, by the first words of a command."""

    programs: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, Finished | Sequence[Finished]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def which(self, name: str) -> str | None:
        return self.programs.get(name)

    def run(self, command: Sequence[str], *, timeout_s: float | None = None, **extra: str) -> Finished:
        line = " ".join(command)
        earlier = sum(call.startswith(command[0]) for call in self.calls)
        self.calls.append(line)
        for beginning, answer in self.answers.items():
            if line.startswith(beginning):
                return answer if isinstance(answer, Finished) else answer[min(earlier, len(answer) - 1)]
        return Finished(127, f"{command[0]}: not here")

    @property
    def said(self) -> str:
        """What it has printed for the person who waits."""
        stream = self.say._stream
        assert isinstance(stream, io.StringIO)
        return stream.getvalue()


@pytest.fixture
def bare(tmp_path: Path) -> FakeMachine:
    """A machine with nothing on it, used by somebody who is not root."""
    return FakeMachine(
        environ={"PATH": "/usr/bin"},
        cache=tmp_path / "cache",
        checkout=CHECKOUT,
        is_root=False,
        has_ensurepip=True,
        say=Say(io.StringIO()),
    )


def answer_of(executable: str, version: Sequence[int] = (3, 14, 7), *, gil: bool = False) -> Finished:
    return Finished(0, json.dumps({"executable": executable, "version": list(version), "gil": gil}))


def finished_build(machine: Machine, version: str) -> Path:
    """Put what looks like a finished build of *version* into the cache."""
    program = machine.cache / f"cpython-{version}t" / "bin" / "python3.14t"
    program.parent.mkdir(parents=True)
    program.touch()
    (machine.cache / f"cpython-{version}t" / READY).touch()
    return program


# -- which interpreter --------------------------------------------------------


def test_the_path_comes_before_the_cache_and_newer_builds_before_older(bare: FakeMachine) -> None:
    older, newer = finished_build(bare, "3.14.5"), finished_build(bare, "3.14.7")
    machine = replace(bare, programs={"python3.14t": "/usr/bin/python3.14t"})
    found = [candidate.path for candidate in bootstrap.candidates(machine)]
    assert found == [Path("/usr/bin/python3.14t"), newer, older]


def test_a_named_interpreter_is_the_only_candidate(bare: FakeMachine) -> None:
    finished_build(bare, "3.14.7")
    machine = replace(bare, environ={"STAGEDOOR_PYTHON": "/opt/py/bin/python3.14t"}, programs={"python3.14t": "/x"})
    assert bootstrap.candidates(machine) == [
        Candidate("STAGEDOOR_PYTHON", Path("/opt/py/bin/python3.14t"), is_demanded=True)
    ]


def test_a_build_that_was_not_finished_is_no_candidate(bare: FakeMachine) -> None:
    program = finished_build(bare, "3.14.7")
    (program.parent.parent / READY).unlink()
    assert bootstrap.candidates(bare) == []


def test_a_candidate_that_will_not_do_is_passed_over_and_named(bare: FakeMachine) -> None:
    built = finished_build(bare, "3.14.7")
    broken = bare.cache / "python3.14t"
    broken.touch()
    answers = {
        f"{broken} -c": Finished(1, "ModuleNotFoundError: No module named 'ssl'"),
        f"{built} -c": answer_of("/b"),
    }
    machine = replace(bare, programs={"python3.14t": str(broken)}, answers=answers)
    verdict = bootstrap.find_interpreter(machine)
    assert verdict is not None
    assert verdict.executable == "/b"
    assert f"{broken} (from PATH) is not used" in machine.said
    assert "No module named 'ssl'" in machine.said


@pytest.mark.parametrize(
    "answer,is_demanded,problem",
    [
        (answer_of("/p"), False, ""),
        (answer_of("/p", gil=True), False, "its GIL is on"),
        (answer_of("/p", gil=True), True, ""),
        (answer_of("/p", (3, 13, 1)), True, ""),
        (answer_of("/p", (3, 13, 1)), False, "it is Python 3.13.1, not 3.14"),
        (answer_of("/p", (3, 15, 0)), False, "it is Python 3.15.0, not 3.14"),
        (answer_of("/p", (3, 12, 9)), True, "it is Python 3.12.9; 3.13 or later is needed"),
        (Finished(0, "hello"), True, "what it printed is not the answer of a Python interpreter"),
        (Finished(3, ""), True, "it does not run as needed: exit 3"),
        (Finished(1, "a\nImportError: b\n"), True, "it does not run as needed: ImportError: b"),
    ],
)
def test_an_interpreter_is_judged_by_what_it_answers(answer: Finished, is_demanded: bool, problem: str) -> None:
    assert bootstrap.judge(Path("/p"), answer, is_demanded=is_demanded).problem == problem


@pytest.mark.parametrize("answer", [answer_of("/p", (3, 12, 0)), Finished(126, "Permission denied")])
def test_a_named_interpreter_that_will_not_do_is_an_error_and_not_replaced(bare: FakeMachine, answer: Finished) -> None:
    named = bare.cache / "python"
    finished_build(bare, "3.14.7")
    named.touch()
    machine = replace(bare, environ={"STAGEDOOR_PYTHON": str(named)}, answers={f"{named} -c": answer})
    with pytest.raises(SetupError, match=f"STAGEDOOR_PYTHON is {named}: ") as caught:
        bootstrap.find_interpreter(machine)
    assert caught.value.code == 2


def test_a_good_interpreter_is_tried_once_and_again_when_its_file_changes(bare: FakeMachine) -> None:
    built = finished_build(bare, "3.14.7")
    machine = replace(bare, answers={f"{built} -c": answer_of(str(built))})
    assert bootstrap.find_interpreter(machine) == bootstrap.find_interpreter(machine)
    assert len(machine.calls) == 1
    built.write_text("another")
    bootstrap.find_interpreter(machine)
    assert len(machine.calls) == 2


def test_a_good_interpreter_is_tried_again_after_the_system_was_upgraded(
    bare: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = finished_build(bare, "3.14.7")
    machine = replace(bare, answers={f"{built} -c": answer_of(str(built))})
    bootstrap.find_interpreter(machine)
    monkeypatch.setattr(bootstrap, "system_mark", lambda: "another release")
    bootstrap.find_interpreter(machine)
    assert len(machine.calls) == 2


def test_records_that_were_cut_short_are_taken_for_none(bare: FakeMachine) -> None:
    bare.cache.mkdir()
    (bare.cache / "interpreters.json").write_text('{"/usr/bin/pyth')
    assert bootstrap.read_records(bare) == {}


def test_uv_is_asked_for_one_and_its_refusal_is_one_calm_line(bare: FakeMachine) -> None:
    machine = replace(bare, answers={"/uv python install": Finished(1, "error: Failed\n  cause: dns error\n")})
    assert bootstrap.interpreter_of_uv(machine, "/uv", may_fetch=True) is None
    assert machine.said.splitlines()[-1] == "stagedoor: uv has none to give: cause: dns error"


def test_the_interpreter_that_uv_manages_is_taken(bare: FakeMachine) -> None:
    bare.cache.mkdir()
    managed = bare.cache / "managed"
    managed.touch()
    answers = {"/uv python find": Finished(0, f"{managed}\n"), f"{managed} -c": answer_of(str(managed))}
    machine = replace(bare, answers=answers)
    found = bootstrap.interpreter_of_uv(machine, "/uv", may_fetch=False)
    assert found is not None
    assert found.executable == str(managed)
    assert not any("install" in call for call in machine.calls)


# -- Debian's packages --------------------------------------------------------


def test_without_root_one_line_says_all_that_is_missing_and_the_exit_code_is_2(bare: FakeMachine) -> None:
    machine = replace(
        bare,
        programs={"apt-get": "/usr/bin/apt-get"},
        answers={
            "dpkg-query": Finished(1, "build-essential installed\nzlib1g-dev not-installed\nxz-utils installed\n")
        },
    )
    with pytest.raises(SetupError) as caught:
        bootstrap.require_interpreter(machine, ALL, uv=None)
    assert caught.value.code == 2
    _, line = str(caught.value).splitlines()
    assert line == (
        "sudo apt-get install -y --no-install-recommends redis-server zlib1g-dev libssl-dev libsqlite3-dev "
        "libffi-dev libbz2-dev liblzma-dev pkg-config"
    )


def test_without_ensurepip_the_one_line_is_enough_for_all_that_follows(bare: FakeMachine) -> None:
    machine = replace(bare, has_ensurepip=False, programs={"apt-get": "/usr/bin/apt-get"})
    with pytest.raises(SetupError) as caught:
        bootstrap.require_venv(machine, ALL)
    assert str(caught.value).splitlines()[1].endswith(" ".join(["python3-venv", "redis-server", *BUILD_PACKAGES]))


def test_as_root_packages_are_installed_after_an_update_if_the_lists_are_old(bare: FakeMachine) -> None:
    install = [Finished(100, "E: Unable to locate package"), Finished(0, ""), Finished(0, "")]
    machine = replace(bare, is_root=True, programs={"apt-get": "apt-get"}, answers={"apt-get": install})
    bootstrap.require_packages(machine, ["redis-server"])
    assert [call.split()[1] for call in machine.calls] == ["install", "update", "install"]


def test_apt_that_fails_twice_is_quoted(bare: FakeMachine) -> None:
    failed = Finished(100, "Reading lists\nE: no space left on device\n")
    machine = replace(bare, is_root=True, programs={"apt-get": "apt-get"}, answers={"apt-get": failed})
    with pytest.raises(SetupError, match="no space left on device") as caught:
        bootstrap.require_packages(machine, ["redis-server"])
    assert caught.value.code == 1


def test_a_machine_without_apt_is_told_what_it_lacks(bare: FakeMachine) -> None:
    with pytest.raises(SetupError, match="redis-server") as caught:
        bootstrap.require_packages(replace(bare, is_root=True), ["redis-server"])
    assert caught.value.code == 2


def test_no_redis_server_is_installed_where_there_is_a_valkey_server(bare: FakeMachine) -> None:
    assert bootstrap.missing_redis(bare, ALL) == ["redis-server"]
    assert bootstrap.missing_redis(replace(bare, programs={"valkey-server": "/v"}), ALL) == []
    assert bootstrap.missing_redis(bare, Wants(is_asking=False, redis=False)) == []


def test_every_server_is_found_once_under_the_name_it_was_found_by(tmp_path: Path) -> None:
    for folder in ("bin", "opt/redis-7.2/bin", "opt/valkey-8/src"):
        (tmp_path / folder).mkdir(parents=True)
    for program in ("bin/redis-check-rdb", "opt/redis-7.2/bin/redis-server", "opt/valkey-8/src/valkey-server"):
        (tmp_path / program).touch(mode=0o755)
    (tmp_path / "bin/redis-server").symlink_to("redis-check-rdb")
    (tmp_path / "opt/valkey-8/src/redis-server").symlink_to("valkey-server")
    found = bootstrap.redis_servers(f"{tmp_path}/bin:/nowhere:{tmp_path}/bin", [tmp_path / "opt"])
    assert [str(Path(program).relative_to(tmp_path)) for program in found] == [
        "bin/redis-server",
        "opt/redis-7.2/bin/redis-server",
        "opt/valkey-8/src/redis-server",
    ]


# -- where the source comes from ----------------------------------------------


def test_mirrors_are_taken_from_apt_each_once_in_its_order() -> None:
    printed = (
        "http://one.example/debian/\nhttp://one.example/debian\n"
        "cdrom:[Debian]/\nmirror+file:/etc/m\nhttps://two.example/d/\n"
    )
    assert bootstrap.mirrors(printed) == ["http://one.example/debian", "https://two.example/d"]


def test_the_source_lies_in_the_mirrors_pool() -> None:
    source = Source("3.14.7", "")
    expected = "http://one.example/debian/pool/main/p/python3.14/python3.14_3.14.7.orig.tar.xz"
    assert bootstrap.source_url("http://one.example/debian", source) == expected
    assert bootstrap.source_url("http://one.example/debian/", source) == expected


def test_the_known_releases_go_from_new_to_old_and_each_has_its_checksum() -> None:
    versions = [tuple(map(int, source.version.split("."))) for source in bootstrap.SOURCES]
    assert versions == sorted(versions, reverse=True)
    assert {len(source.sha256) for source in bootstrap.SOURCES} == {64}


def test_the_proxy_that_apt_uses_is_used() -> None:
    dump = 'Acquire::http::Proxy "http://proxy.example:3128";\nAcquire::https::Proxy "DIRECT";\nAPT::X "1";\n'
    assert bootstrap.apt_proxies(dump) == {"http": "http://proxy.example:3128"}


def test_a_machine_whose_apt_names_no_mirror_is_told_what_else_it_can_do(bare: FakeMachine) -> None:
    with pytest.raises(SetupError, match="set STAGEDOOR_PYTHON") as caught:
        bootstrap.list_mirrors(bare)
    assert caught.value.code == 2


def test_an_archive_with_another_checksum_is_refused_with_both(tmp_path: Path) -> None:
    archive = tmp_path / "python.tar.xz"
    archive.write_bytes(b"something else")
    with pytest.raises(SetupError) as caught:
        bootstrap.check_source(Source("3.14.7", "0" * 64), archive)
    assert "0" * 64 in str(caught.value)
    assert hashlib.sha256(b"something else").hexdigest() in str(caught.value)


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, dict[str, bytes]]]:
    """A mirror on this machine, and the files that it has by name."""
    files: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = files.get(self.path.rpartition("/")[2])
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            """Say nothing."""

    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/debian", files
        server.shutdown()
        thread.join()


def with_mirrors(machine: FakeMachine, *uris: str) -> FakeMachine:
    return replace(machine, answers={"apt-get indextargets": Finished(0, "\n".join(uris))})


def test_the_newest_release_that_a_mirror_has_is_fetched_and_silent_mirrors_are_passed_over(
    bare: FakeMachine, tmp_path: Path, mirror: tuple[str, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, files = mirror
    new, old = (Source(version, hashlib.sha256(version.encode()).hexdigest()) for version in ("3.14.9", "3.14.8"))
    monkeypatch.setattr(bootstrap, "SOURCES", (new, old))
    files[old.archive] = b"3.14.8"
    # Nothing listens on port 9 of this machine: a mirror that gives no answer.
    machine = with_mirrors(bare, "http://127.0.0.1:9/debian", address)
    assert bootstrap.fetch_source(machine, tmp_path) == old
    assert (tmp_path / old.archive).read_bytes() == b"3.14.8"


def test_mirrors_without_any_release_are_all_named(
    bare: FakeMachine, tmp_path: Path, mirror: tuple[str, dict[str, bytes]]
) -> None:
    machine = with_mirrors(bare, "http://127.0.0.1:9/debian", mirror[0])
    with pytest.raises(SetupError) as caught:
        bootstrap.fetch_source(machine, tmp_path)
    assert f"{mirror[0]}: has none of them" in str(caught.value)
    assert "http://127.0.0.1:9/debian: " in str(caught.value)
    assert "refused" in str(caught.value)


def test_what_a_mirror_changed_is_refused_and_no_other_release_taken_instead(
    bare: FakeMachine, tmp_path: Path, mirror: tuple[str, dict[str, bytes]]
) -> None:
    address, files = mirror
    files.update({source.archive: b"changed" for source in bootstrap.SOURCES})
    with pytest.raises(SetupError, match=r"python3.14_3.14.7.orig.tar.xz is not what it should be"):
        bootstrap.fetch_source(with_mirrors(bare, address), tmp_path)


# -- the build ----------------------------------------------------------------

CONFIGURE = (
    '#!/bin/sh\nfor word; do case $word in --prefix=*) echo "PREFIX=${word#--prefix=}" > config.mk;; esac; done\n'
)
MAKEFILE = """include config.mk
all:
\t{all}
install:
\tmkdir -p $(DESTDIR)$(PREFIX)/bin
\tcp python $(DESTDIR)$(PREFIX)/bin/python3.14t
"""
PYTHON = """#!/bin/sh
printf '{{"executable": "%s", "version": [3, 14, 9], "gil": {gil}}}' "$0"
"""

needs_make = pytest.mark.skipif(
    not all(map(shutil.which, ("make", "tar", "xz"))),
    reason="building needs make, tar and xz, which were not needed here",
)


def source_archive(*, compile_with: str = "true", gil: str = "false") -> bytes:
    """Return a tarball that configures, compiles and installs like CPython's, in a moment."""
    files = {
        "configure": CONFIGURE,
        "Makefile": MAKEFILE.format(all=compile_with),
        "python": PYTHON.format(gil=gil),
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"Python-3.14.9/{name}")
            entry.size, entry.mode = len(text.encode()), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


@dataclass(frozen=True)
class BuildingMachine(FakeMachine):
    """A fake machine that really runs what lies in its cache."""

    def run(self, command: Sequence[str], *, timeout_s: float | None = None, **extra: str) -> Finished:
        if Path(command[0]).is_relative_to(self.cache):
            return Machine.run(self, command, timeout_s=timeout_s, **extra)
        return FakeMachine.run(self, command, timeout_s=timeout_s, **extra)


Builder = Callable[[bytes], BuildingMachine]


@pytest.fixture
def builder(
    bare: FakeMachine, mirror: tuple[str, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Builder]:
    """Make a machine whose mirror has one given source."""
    address, files = mirror

    def make(archive: bytes) -> BuildingMachine:
        source = Source("3.14.9", hashlib.sha256(archive).hexdigest())
        monkeypatch.setattr(bootstrap, "SOURCES", (source,))
        files[source.archive] = archive
        bare.cache.mkdir()
        targets = {"apt-get indextargets": Finished(0, address)}
        environ = {"PATH": os.environ["PATH"]}
        return BuildingMachine(
            environ, bare.cache, CHECKOUT, is_root=True, has_ensurepip=True, say=bare.say, answers=targets
        )

    yield make
    assert not list(bare.cache.glob("build-*/")), "a scratch folder was left"


@needs_make
@pytest.mark.process
def test_a_build_is_put_in_place_whole_and_marked(builder: Builder) -> None:
    machine = builder(source_archive())
    verdict = bootstrap.build_interpreter(machine)
    prefix = machine.cache / "cpython-3.14.9t"
    assert verdict == Verdict(str(prefix / "bin" / "python3.14t"), (3, 14, 9))
    assert bootstrap.find_interpreter(machine) == verdict
    assert [line.split(":")[1].strip() for line in machine.said.splitlines()[-4:-1]] == [
        "configuring",
        "compiling",
        "installing",
    ]


@needs_make
@pytest.mark.process
def test_a_compiler_error_is_shown_with_the_place_of_the_log_and_nothing_is_left(builder: Builder) -> None:
    machine = builder(source_archive(compile_with="echo 'ceval.c:1: error: no such luck'; false"))
    with pytest.raises(SetupError) as caught:
        bootstrap.build_interpreter(machine)
    assert "compiling failed (exit 2)" in str(caught.value)
    assert "ceval.c:1: error: no such luck" in str(caught.value)
    assert str(machine.cache / "build.log") in str(caught.value)
    assert not (machine.cache / "cpython-3.14.9t").exists()


@needs_make
@pytest.mark.process
def test_a_build_that_came_out_with_the_gil_on_is_not_put_in_place(builder: Builder) -> None:
    machine = builder(source_archive(gil="true"))
    with pytest.raises(SetupError, match="its GIL is on"):
        bootstrap.build_interpreter(machine)
    assert bootstrap.candidates(machine) == []


@needs_make
@pytest.mark.process
def test_what_an_interrupted_build_left_is_replaced(builder: Builder) -> None:
    machine = builder(source_archive())
    (machine.cache / "cpython-3.14.9t" / "bin").mkdir(parents=True)
    (machine.cache / "build-left-over").mkdir()
    bootstrap.build_interpreter(machine)
    assert bootstrap.is_ready(machine.cache / "cpython-3.14.9t")


def test_a_cache_that_make_cannot_build_in_is_refused_at_once(bare: FakeMachine) -> None:
    with pytest.raises(SetupError, match="XDG_CACHE_HOME") as caught:
        bootstrap.build_interpreter(replace(bare, cache=Path("/home/a b/.cache")))
    assert caught.value.code == 2


def test_leaving_early_ends_the_program_and_all_that_it_started(tmp_path: Path) -> None:
    fifo = tmp_path / "held"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    script = f"exec 3>{fifo}; sleep 300 & echo started; wait"
    with bootstrap.started_alone(["sh", "-c", script], tmp_path, os.environ) as process:
        assert b"started" in next(chunk for chunk in bootstrap.chunks(process) if chunk)
    # The end of the file comes when nobody holds the other end any more.
    assert select.select([reader], [], [], 20)[0], "something of it still runs"
    assert os.read(reader, 1) == b""
    os.close(reader)


# -- nox and uv, and one at a time --------------------------------------------


def test_unfinished_tools_are_made_again(bare: FakeMachine) -> None:
    class Installing(FakeMachine):
        def run(self, command: Sequence[str], *, timeout_s: float | None = None, **extra: str) -> Finished:
            bootstrap.tools_folder(self).mkdir(exist_ok=True)
            return Finished(0, "")

    machine = Installing(bare.environ, bare.cache, CHECKOUT, is_root=False, has_ensurepip=True, say=bare.say)
    folder = bootstrap.tools_folder(machine)
    folder.mkdir(parents=True)
    (folder / "half").touch()
    assert bootstrap.private_tools(machine) is None
    tools = bootstrap.make_tools(machine)
    assert not (folder / "half").exists()
    assert bootstrap.private_tools(machine) == tools


def test_tools_that_cannot_be_installed_are_no_tools(bare: FakeMachine) -> None:
    venv, pip = Finished(0, ""), Finished(1, "WARNING: x\nERROR: No matching distribution found for nox\n")
    machine = replace(bare, answers={f"{bare.cache}": pip, "": venv})
    with pytest.raises(SetupError, match="No matching distribution found for nox"):
        bootstrap.make_tools(machine)
    assert bootstrap.private_tools(machine) is None


def test_other_versions_of_the_tools_are_another_folder(bare: FakeMachine, tmp_path: Path) -> None:
    (tmp_path / "constraints.txt").write_text("nox==2025.1\nuv==1\nattrs==1\n")
    machine = replace(bare, checkout=tmp_path)
    before = bootstrap.tools_folder(machine)
    (tmp_path / "constraints.txt").write_text("nox==2025.1\nuv==1\nattrs==2\n")
    assert bootstrap.tools_folder(machine) == before
    (tmp_path / "constraints.txt").write_text("nox==2025.1\nuv==2\nattrs==2\n")
    assert bootstrap.tools_folder(machine) != before


def test_a_second_set_up_waits_for_the_first_and_says_so(bare: FakeMachine) -> None:
    asked = threading.Event()

    class Stream(io.StringIO):
        def flush(self) -> None:
            asked.set()

    waiting = replace(bare, say=Say(Stream()))
    order = []

    def second() -> None:
        with bootstrap.one_at_a_time(waiting):
            order.append("second")

    thread = threading.Thread(target=second)
    with bootstrap.one_at_a_time(bare):
        thread.start()
        assert asked.wait(20)
        order.append("first")
    thread.join(20)
    assert order == ["first", "second"]


def test_what_was_made_while_waiting_is_not_made_again(bare: FakeMachine) -> None:
    folder = bootstrap.tools_folder(bare)
    folder.mkdir(parents=True)
    (folder / READY).touch()
    assert bootstrap.make_tools(bare).uv == str(folder / "bin" / "uv")
    assert bare.calls == []


# -- what nox's arguments ask for ---------------------------------------------


@pytest.mark.parametrize(
    "argv,named",
    [
        ([], []),
        (["-s", "demo"], ["demo"]),
        (["-s", "lint", "types", "-R", "x"], ["lint", "types"]),
        (["-slint"], ["lint"]),
        (["--sessions=lint"], ["lint"]),
        (["--session", "lint", "--", "-s", "demo"], ["lint"]),
        (["-e", "arch", "-s", "lint"], ["arch", "lint"]),
    ],
)
def test_the_sessions_are_read_from_the_arguments(argv: list[str], named: list[str]) -> None:
    assert bootstrap.sessions_named(argv) == named


@pytest.mark.parametrize(
    "argv,wants",
    [
        ([], Wants(is_asking=False, redis=True)),
        (["-l"], Wants(is_asking=True, redis=True)),
        (["--help"], Wants(is_asking=True, redis=True)),
        (["-s", "tests", "--", "--help"], Wants(is_asking=False, redis=True)),
        (["-s", "lint", "types"], Wants(is_asking=False, redis=False)),
        (["-s", "lint", "tests"], Wants(is_asking=False, redis=True)),
    ],
)
def test_a_question_needs_no_interpreter_and_lint_no_redis(argv: list[str], wants: Wants) -> None:
    assert bootstrap.read_wants(argv) == wants


# -- what is said -------------------------------------------------------------


def test_into_a_file_progress_is_a_whole_line_now_and_then() -> None:
    clock, stream = Clock(), io.StringIO()
    say = Say(stream, clock)
    for clock.now in range(40):
        say.progress(f"compiling  {clock.now} %")
    assert stream.getvalue() == "stagedoor: compiling  15 %\nstagedoor: compiling  30 %\n"


def test_on_a_terminal_progress_overwrites_itself_and_leaves_no_trace() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    say = Say(stream)
    say.progress("long and longer")
    say.progress("short")
    say.line("done")
    last = stream.getvalue().rpartition("\r")[2]
    assert last == "stagedoor: done\n"
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize(
    "error,code",
    [(SetupError("x", code=2), 2), (SetupError("x"), 1), (KeyboardInterrupt(), 130), (OSError(28, "full"), 1)],
)
def test_what_is_foreseeable_ends_in_a_line_and_an_exit_code(error: BaseException, code: int) -> None:
    stream = io.StringIO()
    with pytest.raises(SystemExit) as caught, bootstrap.said_if_wrong(Say(stream)):
        raise error
    assert caught.value.code == code
    assert stream.getvalue().startswith("stagedoor: ")


@pytest.mark.process
def test_the_command_ends_with_one_line_and_code_2_when_the_named_interpreter_is_not_there(tmp_path: Path) -> None:
    environ = os.environ | {"STAGEDOOR_PYTHON": "/nowhere/python", "XDG_CACHE_HOME": str(tmp_path)}
    # A folder of tools that looks finished, so that none is fetched.
    code = """
import os, pathlib, bootstrap
here = pathlib.Path.cwd()
folder = bootstrap.tools_folder(bootstrap.this_machine(os.environ, here))
folder.mkdir(parents=True)
(folder / bootstrap.READY).touch()
bootstrap.main(["-s", "lint"], here / "noxfile.py")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "stagedoor: STAGEDOOR_PYTHON is /nowhere/python: No such file or directory"
    assert "Traceback" not in done.stderr
