"""The processes of a rehearsal: none is left behind, whenever somebody interrupts."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stagedoor.rehearsal.crew import Crew, House


@pytest.mark.process
def test_an_interrupt_between_the_fork_and_its_being_noted_leaves_no_process_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(folder=tmp_path)
    house.logs_dir.mkdir()
    started: list[subprocess.Popen[bytes]] = []

    def start(words: list[str], **options: Any) -> subprocess.Popen[bytes]:
        process = plain(words, **options)
        if "worker" in words:
            started.append(process)
            os.kill(os.getpid(), signal.SIGINT)
        return process

    plain = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    crew = Crew(house, "redis://127.0.0.1:1/0", slots=1, with_relay=False)
    with pytest.raises(KeyboardInterrupt), crew:
        pass
    assert [process.poll() is not None for process in started] == [True]
