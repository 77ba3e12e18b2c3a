"""Processes of our own need no protected script, say what they cannot find, and are replaced if they are stopped."""

import os
import signal
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path

import pytest

from fairlag.errors import InputError, WorkerError
from fairlag.execute import child, children, crew
from fairlag.execute.crew import Crew
from tests.support.patience import PATIENCE, wait_until

SCRIPT = """
import fairlag
from torch import nn


def mine(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes), nn.Dropout(0.1))


tables = {
    "name": "plain",
    "aggregations": 2,
    "data": {"use": "digits"},
    "model": {"use": mine},
    "local": {"steps": 1},
    "clients": [{"group": "all", "count": 3, "delay": "constant(1)"}],
    "strategies": [{"use": "fedstaleweight", "buffer": 3}],
}
print(fairlag.simulate(tables, executor="processes", workers=1, out="first").version)


def late(shape, classes):
    return mine(shape, classes)


try:
    fairlag.simulate({**tables, "model": {"use": late}}, executor="processes", workers=1, out="second")
except fairlag.errors.InputError as error:
    print(error)
"""


def test_a_script_need_not_be_protected(tmp_path: Path) -> None:
    """Its own functions are found, without its runs being started again, if they are above the first run."""
    script = tmp_path / "plain.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "2",
        f"a worker cannot start: '{script}' defines 'late' only after its first run: move the definition up, "
        "or start runs under if __name__ == '__main__'",
    ]


def test_what_no_file_defines_is_one_sentence() -> None:
    here, there = Pipe()
    with here, there:
        here.send_bytes(b"c__main__\nmine\n.")  # a function of a notebook, as pickled
        with pytest.raises(
            InputError, match=r"^'mine' is not in a file that a worker can read: put it into a separate module"
        ):
            child.received(there)


# Questions to a crew


def asked(subject: int, detail: int) -> int:
    if detail < 0:
        raise InputError(f"{detail} is negative")
    if detail == 99:
        os._exit(3)
    return subject * detail


def process_of(subject: int, detail: int) -> int:
    return os.getpid()


def test_answers_come_in_the_order_of_the_questions(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(crew, "_CHECK_INTERVAL", 0.01)
    made = Crew(7, 2)
    try:
        assert list(made.answers(asked, range(20))) == [7 * each for each in range(20)]
        with pytest.raises(InputError, match=r"^-3 is negative$"):
            list(made.answers(asked, [1, -3]))
        first, *_ = made.answers(process_of, [0])
        os.kill(first, signal.SIGSTOP)
        wait_until(lambda: children.is_stopped(first))
        assert list(made.answers(asked, range(20))) == [7 * each for each in range(20)]
        (said,) = capfd.readouterr().err.splitlines()
        assert said == (f"worker process {first} is stopped (SIGSTOP): another one replaces it and repeats its tasks")
        with pytest.raises(WorkerError, match=r"^a worker process died, perhaps out of memory: try fewer workers$"):
            list(made.answers(asked, [99]))
    finally:
        made.close()


def test_a_busy_process_and_one_that_is_gone_are_not_stopped() -> None:
    assert not children.is_stopped(os.getpid())
    assert not children.is_stopped(2**22 + 1)
