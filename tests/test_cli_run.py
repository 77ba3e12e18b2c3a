"""`fairlag run` and `fairlag resume` as a user meets them: what they write and print, their errors, and Ctrl-C."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fairlag.cli import run as command
from fairlag.data.sources import SOURCES
from fairlag.errors import DivergedError, FairlagError, StalledError, StoreError, WorkerError
from fairlag.lab.runs import runs
from tests.support.command import Call
from tests.support.data_files import SMALL, put
from tests.support.patience import PATIENCE

TINY = ["--set", "model.use=logistic", "--set", "evaluate.every=10", "--workers", "1"]
SHORT = [*TINY, "--aggregations", "20"]
ONE = [*SHORT, "--strategy", "fairshare"]


def test_a_run_is_shown_compared_drawn_and_named(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = call("run", "demo", "--out", str(out), *SHORT)
    assert done.code == 0
    names = ["buffered-fedavg-seed0", "curve.png", "fairshare-seed0", "fedstaleweight-seed0", "plan.json"]
    assert sorted(file.name for file in out.iterdir()) == names
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert all(
        words in done.out for words in ("Comparison of demo, ranked by accuracy; group: slow", "▾accuracy", "Time to")
    )
    assert done.out.endswith(f"The runs are in {out}, the figure in {out / 'curve.png'}\n")
    lines = done.err.splitlines()
    assert lines[-1].startswith("FairShare, seed 0: 20 of 20 aggregations, time 1")
    assert " %, slow " in lines[-1]
    assert {line.partition(",")[0] for line in lines} == {"Buffered FedAvg", "FedStaleWeight", "FairShare"}


def test_strategies_and_seeds_are_chosen(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("run", "demo", "--seed", "4", "--seeds", "2", "--set", "name=mine", *ONE).code == 0
    assert [run.folder.name for run in runs("runs/mine")] == ["fairshare-seed4", "fairshare-seed5"]
    assert [run.version for run in runs("runs/mine")] == [20, 20]


def test_a_name_does_not_lead_out_of_the_folder_of_runs(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("run", "racer", "--set", "name=../../My x", "--aggregations", "5").code == 0
    assert [file.name for file in tmp_path.iterdir()] == ["runs"]
    assert [file.name for file in (tmp_path / "runs").iterdir()] == ["my-x"]


def test_settings_reach_the_run(call: Call, tmp_path: Path) -> None:
    settings = ["--set", "local.lr=0.05", "--set", "strategies.fairshare.buffer=4", "--set", "clients.slow.count=7"]
    assert call("run", "demo", "--out", str(tmp_path / "out"), *ONE, *settings).code == 0
    (run,) = runs(tmp_path / "out")
    written = json.loads((run.folder / "experiment.json").read_text())["experiment"]
    assert (written["local"]["lr"], written["strategies"][0]["buffer"], len(run.clients)) == (0.05, 4, 17)


def test_a_fleet_that_learns_nothing_has_no_figure(call: Call, tmp_path: Path) -> None:
    done = call("run", "racer", "--aggregations", "20", "--out", str(tmp_path / "out"))
    assert done.code == 0
    assert "Comparison of racer, ranked by Jain index" in done.out
    assert done.out.endswith("out; there was nothing to train, so there is no figure\n")
    assert not (tmp_path / "out/curve.png").exists()


def test_what_is_finished_is_not_run_again(call: Call, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    first = call("run", "demo", "--out", out, *ONE)
    done = call("resume", out)
    assert (done.code, done.err) == (0, "")
    assert done.out == f"Every run in {out} is finished: there is nothing to do\n\n{first.out}"
    single = call("resume", f"{out}/fairshare-seed0")
    assert single.code == 0
    assert "Comparison of demo" in single.out


# Mistakes

OWN = """
from torch import nn

def narrow(shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
"""

MISTAKES = {
    "missing data": (
        ["data.use=mnist"],
        "the data set mnist was not found in {data}/mnist, {data}, ",
    ),
    "wrong checksum": (["data.use=fashion_mnist"], "t10k-labels-idx1-ubyte from {data}/fashion_mnist/t10k-labels"),
    "no examples": (["clients.slow.count=577"], "group 'slow' has 1 client without an example (of 577): give the "),
    "output": (["model.use=own_things:narrow"], "the model 'own_things:narrow' returns (2, 3) for 2 examples, "),
    "unknown key": (["local.lrr=1"], "unknown key 'local.lrr': did you mean 'lr'?"),
    "unknown model": (["model.use=logistics"], "unknown model 'logistics': did you mean 'logistic'?"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_one_sentence_and_leave_nothing_behind(
    call: Call, case: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, sentence = MISTAKES[case]
    put(
        place / "fashion_mnist", {**SMALL["fashion_mnist"], "t10k-labels-idx1-ubyte": b"\0\0\x08\x01\0\0\0\x04\1\1\1\1"}
    )
    (tmp_path / "own_things.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    words = [*SHORT, "--strategy", "buffered_fedavg"]
    done = call("run", "demo", "--out", "out", *words, *(word for each in settings for word in ("--set", each)))
    *before, last = done.err.splitlines()
    assert (done.code, done.out) == (2, "")
    assert all(line.startswith("fairlag: importing the module 'own_things' for the ") for line in before)
    assert last.startswith("fairlag: " + sentence.format(data=place))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("error", "code"), [(DivergedError, 1), (StoreError, 1), (WorkerError, 1), (StalledError, 2)], ids=str
)
def test_what_goes_wrong_on_the_way_has_its_code(
    call: Call, error: type[FairlagError], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error("it cannot go on")

    monkeypatch.setattr(command, "execute", fail)
    done = call("run", "demo", "--out", str(tmp_path / "out"), *ONE)
    assert (done.code, done.err) == (code, "fairlag: it cannot go on\n")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(errno.ENOSPC, "No space left"), "cannot write the output: [Errno 28] No space left"),
        (
            PermissionError(errno.EACCES, "Permission denied", "x"),
            "the system refused: [Errno 13] Permission denied: 'x'",
        ),
        (OSError(errno.EMFILE, "Too many open files"), "the system refused: [Errno 24] Too many open files"),
    ],
    ids=str,
)
def test_what_the_system_refuses_is_one_honest_sentence(
    call: Call, error: OSError, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(command, "execute", fail)
    done = call("run", "demo", *ONE)
    assert (done.code, done.err) == (1, f"fairlag: {sentence}\n")


@pytest.mark.usefixtures("place")
def test_every_way_to_get_missing_data_is_named(call: Call, tmp_path: Path) -> None:
    done = call("run", "paper-fashion-mnist", "--out", str(tmp_path / "out"))
    assert done.code == 2
    assert all(way in done.err for way in SOURCES["fashion_mnist"].ways)


def test_a_run_directory_that_exists(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    done = call("run", "demo", "--out", str(out), *ONE)
    assert (done.code, done.err) == (2, f"fairlag: the run directory {str(out)!r} exists: choose another with --out\n")
    (out / "notes.txt").unlink()
    assert call("run", "demo", "--out", str(out), *ONE).code == 0
    done = call("run", "demo", "--out", str(out), *ONE)
    sentence = f"the run directory {str(out)!r} exists: `fairlag resume {out}` continues it, or choose another"
    assert (done.code, done.err) == (2, f"fairlag: {sentence} with --out\n")


def test_a_run_made_by_a_different_experiment(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert call("run", "demo", "--out", str(out), *ONE).code == 0
    plan = json.loads((out / "plan.json").read_text())
    del plan["sha256"]  # as someone who changes it on purpose
    plan["experiment"]["local"]["lr"] = 0.2
    (out / "plan.json").write_text(json.dumps(plan))
    done = call("resume", str(out))
    place = str(out / "fairshare-seed0")
    sentence = f"the run in {place!r} belongs to a different experiment: local.lr is 0.1 there and 0.2 here"
    assert (done.code, done.err) == (2, f"fairlag: {sentence}\n")


def test_there_is_nothing_to_resume(call: Call, tmp_path: Path) -> None:
    done = call("resume", str(tmp_path))
    assert done.code == 2
    assert done.err.startswith(f"fairlag: there is nothing to resume in {str(tmp_path)!r}: ")


@pytest.mark.parametrize(
    ("free", "what"), [(0, "the plan of the runs"), (2, "a new run"), (6, "the final model")], ids=str
)
def test_a_full_disk(call: Call, free: int, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many files and folders still fit."""
    flush, flushed = os.fsync, 0

    def fill(number: int) -> None:
        nonlocal flushed
        flushed += 1
        if flushed > free:
            raise OSError(errno.ENOSPC, "No space left on device")
        flush(number)

    out = tmp_path / "out"
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fill)
        done = call("run", "demo", "--out", str(out), *ONE)
    assert (done.code, done.out) == (1, "")
    last = done.err.splitlines()[-1]
    assert last.startswith(f"fairlag: cannot write {what} to '{out}")
    assert "the disk is full; make room, then " in last
    again = ("resume", str(out), "--workers", "1") if free else ("run", "demo", "--out", str(out), *ONE)
    assert call(*again).code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "demo", "--seeds", "0"], "--seeds is 0, it must be at least 1"),
        (["run", "demo", "--seed", "-1"], "--seed is -1, it must be at least 0"),
        (["run", "demo", "--workers", "0"], "--workers is 0, it must be at least 1"),
        (["run", "demo", "--aggregations", "0"], "--aggregations is 0, it must be at least 1"),
        (["run", "demo", "--set", "local.lr"], "'local.lr' cannot be set: write path.to.key=value"),
        (["run", "nothing"], "there is no experiment file or preset 'nothing'"),
        (["run", "demo", "--out", "/proc/out"], "cannot create the run directory '/proc/out': "),
    ],
)
def test_bad_options(
    call: Call, words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"fairlag: {sentence}")
    assert list(tmp_path.iterdir()) == []


# Ctrl-C, on a process of its own


def begun(*words: str, folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "fairlag", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)


def interrupted(process: "subprocess.Popen[str]", times: int = 1) -> str:
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    out, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in errors
    return errors.splitlines()[-1]


@pytest.mark.parametrize(("times", "workers"), [(1, "1"), (3, "1"), (1, "2")])
def test_an_interrupted_run_says_how_to_go_on_and_does(call: Call, times: int, workers: str, tmp_path: Path) -> None:
    aggregations = {"1": "20000", "2": "8000"}[workers]  # so that the last three quarters take a moment
    words = ["--set", "model.use=logistic", "--aggregations", aggregations, "--strategy", "fairshare", "--workers"]
    with begun("run", "demo", "--out", "out", *words, workers, folder=tmp_path) as process:
        assert process.stderr is not None
        while "aggregations" not in process.stderr.readline():
            assert process.poll() is None
        last = interrupted(process, times)
    if times == 1:
        assert last.startswith("fairlag: interrupted at version ")
        assert last.endswith(" of FairShare, seed 0: `fairlag resume out` continues from there")
    else:
        assert "`fairlag resume out` continues from " in last
    assert call("resume", str(tmp_path / "out"), "--workers", "1").code == 0
    assert call("run", "demo", "--out", str(tmp_path / "whole"), *words, "1").code == 0
    model = "fairshare-seed0/model.safetensors"
    assert (tmp_path / "out" / model).read_bytes() == (tmp_path / "whole" / model).read_bytes()


SLOW = """
import sys, time

def slow():
    print("loading", file=sys.stderr, flush=True)
    time.sleep(60)
"""


def test_an_interrupt_while_data_is_loaded_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "slow_things.py").write_text(SLOW)
    with begun("run", "demo", "--out", "out", "--set", "data.use=slow_things:slow", folder=tmp_path) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("fairlag: importing the module 'slow_things' for the data set")
        assert process.stderr.readline() == "loading\n"
        assert interrupted(process) == "fairlag: interrupted before the first run began; nothing was written"
    assert not (tmp_path / "out").exists()


def test_an_interrupt_between_runs(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while workers start: the plan is there, so it can be resumed, but no run was under way."""

    def halt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    handler = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as stopped:
        stopped.setattr(command, "conclude", halt)
        done = call("run", "demo", "--out", str(tmp_path / "out"), *ONE)
    signal.signal(signal.SIGINT, handler)
    sentence = f"fairlag: interrupted: `fairlag resume {tmp_path / 'out'}` continues from the last checkpoint"
    assert (done.code, done.err.splitlines()[-1]) == (130, sentence)
