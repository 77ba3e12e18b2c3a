"""Looking at runs, which may be anybody's, never imports what they name; what trains says so and can be refused."""

import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fairlag
from fairlag.cli.report import watched
from fairlag.errors import InputError
from tests.support.command import Call
from tests.support.patience import PATIENCE

_PLANTED = """
from pathlib import Path
import numpy as np
from torch import nn

Path(__file__).with_name("was imported").touch()

def rule(buffer, view):
    return np.full(len(buffer), 1 / len(buffer))

def data():
    return np.arange(80, dtype=np.float32).reshape(40, 2), np.arange(40) % 2

def model(shape, classes):
    return nn.Linear(2, classes)
"""

_EXPERIMENT = """
name = "planted"
aggregations = 12
model_bytes = 0

[[clients]]
group = "fast"
count = 3
delay = "uniform(1, 2)"

[[clients]]
group = "slow"
count = 2
delay = "uniform(4, 6)"

[[strategies]]
use = "planted:rule"
buffer = 2

[[strategies]]
use = "fedbuff"
buffer = 2
concurrency = 3

[data]
use = "planted:data"

[model]
use = "planted:model"

[evaluate]
every = 4
"""


@pytest.fixture
def planted(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with runs whose strategy, data and model are in a module that leaves a mark when it is imported."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/planted.py").write_text(_PLANTED)
    (tmp_path / "theirs/planted.toml").write_text(_EXPERIMENT)
    done = call("run", str(tmp_path / "theirs/planted.toml"), "--seeds", "2", "--out", "runs", "--workers", "1")
    assert done.code == 0, done.err
    assert done.err.count("importing the module 'planted' for the strategy 'planted:rule'\n") == 1
    sys.modules.pop("planted")
    (tmp_path / "theirs/was imported").unlink()
    yield tmp_path / "theirs/was imported"
    sys.modules.pop("planted", None)


def page_of(folder: Path) -> str:
    with watched(folder, ("127.0.0.1", 0)) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        with urllib.request.urlopen(f"{server.address}page.json", timeout=PATIENCE) as answer:
            text: str = answer.read().decode()
        server.shutdown()
    return text


def test_no_command_that_looks_imports_what_a_run_names(call: Call, planted: Path) -> None:
    for words in (
        ("runs", "runs"),
        ("runs", "runs", "--json"),
        ("runs", "runs", "--verify"),
        ("freeze", "runs", "--out", "a.zip"),
        ("rollback", "runs/rule-buffer-2-seed0"),
        ("quarantine", "runs/rule-buffer-2-seed0"),
        ("compare", "runs", "--figure", "a.png"),
        ("report", "runs", "--workers", "1"),
        ("figure", "runs", "--kind", "curve", "--out", "a.png"),
        ("figure", "runs", "--kind", "influence", "--out", "a.png"),
        ("figure", "runs", "--kind", "staleness", "--out", "a.png"),
        ("figure", "runs", "--kind", "timeline", "--out", "a.png"),
        ("fit-fleet", "runs", "--out", "theirs/fleet.toml"),
        ("fit-fleet", "runs/rule-buffer-2-seed0", "--out", "theirs/other.toml", "--json"),
    ):
        done = call(*words)
        assert (done.code, done.err.count("importing")) == (0, 0), done.err
        assert not planted.exists(), words
    assert 'use = "planted:rule"' in Path("theirs/fleet.toml").read_text()
    done = call("figure", "runs", "--kind", "incentives", "--out", "a.png", "--workers", "1")
    assert done.code == 2
    assert "rule (buffer=2) was not simulated: it is code (planted:rule)" in done.err
    assert "rule (buffer=2) was not simulated: it is code (planted:rule)" in Path("report.html").read_text()
    assert "rule (buffer=2)" in page_of(Path("runs"))
    assert not planted.exists()


def test_nothing_in_python_that_looks_imports_what_a_run_names(planted: Path) -> None:
    looks: list[Callable[[], object]] = [
        lambda: [(repr(run), str(run), run._repr_html_(), run.settings, run.tensors()) for run in fairlag.runs("runs")],
        lambda: fairlag.compare("runs")._repr_html_(),
        lambda: fairlag.figure("runs", "staleness"),
        lambda: fairlag.fit_fleet("runs").text,
    ]
    for look in looks:
        look()
        assert not planted.exists()
    run = fairlag.Run("runs/rule-buffer-2-seed0")
    with pytest.raises(InputError, match=r"the model 'planted:model' of the run in .* is code: if you trust it"):
        run.model()
    assert not planted.exists()
    assert run.model(code=True).eval()
    assert planted.exists()


def test_no_code_refuses_all_of_it(call: Call, planted: Path) -> None:
    file = Path("theirs/planted.toml")
    for words, use in (
        (("run", str(file), "--out", "other"), "strategy 'planted:rule'"),
        (("resume", "runs"), "strategy 'planted:rule'"),
        (("audit", str(file)), "strategy 'planted:rule'"),
        (("figure", str(file), "--kind", "rewards", "--out", "a.png"), "strategy 'planted:rule'"),
        (("data", "show", str(file)), "strategy 'planted:rule'"),
        (("run", str(file), "--out", "other"), "data set 'planted:data'"),
        (("data", "show", str(file)), "data set 'planted:data'"),
        (("run", str(file), "--out", "other"), "model 'planted:model'"),
    ):
        if "rule" not in use:
            file.write_text(file.read_text().replace("planted:rule", "fairshare"))
        if "model" in use:
            file.write_text(file.read_text().replace("planted:data", "digits"))
        done = call(*words, "--no-code")
        assert (done.code, done.out) == (2, "")
        assert f"the {use} is code, which --no-code refuses" in done.err
        assert not planted.exists()
