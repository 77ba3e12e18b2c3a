"""How a process ends from outside: SIGTERM leaves nothing temporary, and no shortage of the system is a traceback."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairlag.__main__ import main
from tests.support.patience import PATIENCE, wait_until

_ENDLESS = """
from fairlag import simulate
clients = [{"group": "all", "count": 9, "delay": "uniform(1, 2)"}]
strategies = [{"use": "fedbuff", "buffer": 3, "concurrency": 5}]
simulate({"name": "endless", "aggregations": 10**9, "clients": clients, "strategies": strategies})
"""


def test_sigterm_removes_the_temporary_folder_of_a_run(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _ENDLESS], env={**os.environ, "TMPDIR": str(tmp_path)}, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: bool(list(tmp_path.glob("fairlag-*/run.sqlite"))), "the run has begun")
        process.terminate()
        _, complaints = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, complaints) == (143, "")
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_is_terminated_ends_without_a_complaint(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fairlag", "watch", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline().startswith("Following")
        process.send_signal(signal.SIGTERM)
        _, complaints = process.communicate(timeout=PATIENCE)
    assert (process.returncode, complaints) == (143, "")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError(), "fairlag: the system is out of memory"),
        (ImportError("libx.so: failed to map segment from shared object"), "fairlag: the system is out of memory"),
        (OSError(12, "Cannot allocate memory"), "fairlag: the system is out of memory"),
        (RuntimeError("can't start new thread"), "fairlag: the system cannot start another thread"),
    ],
)
def test_a_shortage_of_the_system_is_one_sentence(
    error: Exception, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def short(*_: object) -> None:
        raise error

    monkeypatch.setattr("fairlag.cli.lists.tables.presets_table", short)
    monkeypatch.setattr(sys, "argv", ["fairlag", "presets"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert (ended.value.code, said.count("\n")) == (1, 1)
    assert said.startswith(sentence)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
