"""The trackers' own libraries, for real: what a run wrote, read back; after an interruption, kill -9, and a resume."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fairlag.errors import Interrupted
from fairlag.lab.events import Begun
from fairlag.lab.plan import Plan, settings_of
from fairlag.lab.run import Run
from fairlag.lab.simulate import execute
from fairlag.lab.track.points import Points
from fairlag.lab.track.tensorboard import TensorBoard
from tests.support.resuming import CtrlC, contents
from tests.support.trackers import look_often, training

Curves = dict[str, list[tuple[int, float]]]
"""Of each metric: its steps and values, in the order of the record."""

VARIABLES = ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_MODE", "WANDB_DIR", "WANDB_PROJECT")

# A process that commits at every event, and is gone when it would have told its tracker of version 12 or later.
PROGRAM = """
import os, signal, sys
from pathlib import Path
from typing import Any, NamedTuple
from fairlag.lab import loop
from fairlag.lab.events import Kept
from fairlag.lab.plan import Plan
from fairlag.lab.simulate import execute
def kill(planned, event):
    if isinstance(event, Kept) and event.version >= 12:
        os.kill(os.getpid(), signal.SIGKILL)
loop.CHECKPOINT, loop._COSTLY, loop._LOOK = 0.0, 0, 0.0
execute(Plan.open(Path(sys.argv[1])), workers=1, watch=kill)
"""


@pytest.fixture(autouse=True)
def as_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is configured, whatever the machine has; runs look and commit at every event."""
    look_often(monkeypatch)
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


def killed(name: str, folder: Path) -> Plan:
    """A plan whose only run was killed while it was tracked."""
    plan = Plan(training(track=name), (3,), folder)
    plan.save()
    done = subprocess.run([sys.executable, "-c", PROGRAM, folder], capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    assert done.stderr == ""
    assert 12 <= Run(next(iter(plan)).folder).version < 17
    return Plan.open(folder)


def recorded(run: Run) -> tuple[Curves, dict[str, float]]:
    """What the database says that a tracker must have: the curves, and the final metrics."""
    points, curves = Points(run.folder, 5, trains=True), Curves()
    for point in points.new(finished=True):
        for name, value in point.metrics.items():
            curves.setdefault(name, []).append((point.version, value))
    assert [version for version, _ in curves["virtual_time"]] == [0, 5, 10, 15, 17]
    return curves, {f"final/{name}": value for name, value in points.last().metrics.items()}


# TensorBoard


def opened(folder: Path) -> Any:
    from tensorboard.backend.event_processing import event_accumulator  # type: ignore[import-untyped]

    log = event_accumulator.EventAccumulator(str(folder))
    log.Reload()
    return log


def read_tensorboard(folder: Path) -> Curves:
    log = opened(folder)
    return {tag: [(event.step, event.value) for event in log.Scalars(tag)] for tag in log.Tags()["scalars"]}


def check_tensorboard(run: Run) -> None:
    curves, final = recorded(run)
    expected = {**curves, **{name: [(17, value)] for name, value in final.items()}}
    found = read_tensorboard(run.folder)
    assert found.keys() == expected.keys()
    for name, curve in found.items():
        assert [step for step, _ in curve] == [step for step, _ in expected[name]]
        # It keeps numbers of 32 bits.
        assert [value for _, value in curve] == pytest.approx([value for _, value in expected[name]], rel=1e-6)
    log = opened(run.folder)
    first, last = log.Scalars("jain")[0], log.Scalars("jain")[-1]
    moments = run.aggregations.set_index("version")["time"]
    assert last.wall_time - first.wall_time == pytest.approx(moments[17] - moments[5], abs=1e-3), "time is virtual"
    text = log.Tensors("settings/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "| clients.slow 50%.count | 2 |" in text
    assert {"_hparams_/session_start_info", "_hparams_/session_end_info"} <= set(log.PluginTagToContent("hparams"))


def test_tensorboard_after_ctrl_c(tmp_path: Path) -> None:
    plan = Plan(training(track="tensorboard"), (3,), tmp_path)
    with pytest.raises(Interrupted):
        execute(plan, new=True, workers=1, watch=CtrlC(8))
    (planned,) = plan
    assert [step for step, _ in read_tensorboard(planned.folder)["virtual_time"]] == [0, 5]
    (run,) = execute(Plan.open(tmp_path), workers=1)
    check_tensorboard(run)
    files = sorted(run.folder.iterdir())
    assert len([file for file in files if ".tfevents." in file.name]) == 4, "before, after, settings, and a mark"
    execute(Plan.open(tmp_path), workers=1)
    assert sorted(run.folder.iterdir()) == files, "a complete record is left alone"


@pytest.mark.slow
def test_tensorboard_after_kill_9(tmp_path: Path) -> None:
    (run,) = execute(killed("tensorboard", tmp_path), workers=1)
    check_tensorboard(run)


def test_a_tensorboard_that_is_open_meanwhile_drops_what_it_had(tmp_path: Path) -> None:
    begun = Begun("k", "e", "l", 0, tmp_path, {}, 100.0)
    log = opened(tmp_path)
    for points in ((0, 5), (0, 5, 10)):
        tracker = TensorBoard(tmp_path, begun)
        for version in points:
            tracker.log(version, float(version), {"jain": version / 10})
        tracker.end("interrupted", points[-1], 0.0, {})
        log.Reload()
        assert [event.step for event in log.Scalars("jain")] == list(points)


# Weights & Biases


def blocks(file: Path) -> Iterator[bytes]:
    """The records of an offline file: a header of 7 bytes, then blocks of 32 kB whose records may be in parts."""
    content, place, whole = file.read_bytes(), 7, b""
    assert content[:4] == b":W&B"
    while place + 7 <= len(content):
        if (left := 2**15 - place % 2**15) < 7:
            place += left
            continue
        size, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        whole += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield whole
            whole = b""


def parsed(file: Path) -> list[Any]:
    from wandb.proto import wandb_internal_pb2

    kind: Any = vars(wandb_internal_pb2)["Record"]  # made when it is imported: no type checker sees it
    return [kind.FromString(block) for block in blocks(file)]


def named(items: Iterable[Any]) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


class Offline(NamedTuple):
    """What an offline record of Weights & Biases says."""

    curves: Curves
    summary: dict[str, object]
    settings: dict[str, object]
    codes: list[int]
    text: str


def read_wandb(folder: Path) -> Offline:
    """The only record, once W&B's own process has written its end, which it does a moment later."""
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    for _ in range(100):
        found = Offline({}, {}, {}, [], "".join(str(each) for each in parsed(file)))
        for record in parsed(file):
            row = named(record.history.item)
            for name in (each for each in row if not each.startswith("_")):
                found.curves.setdefault(name, []).append((row["_step"], row[name]))
            found.summary.update(named(record.summary.update))
            found.settings.update(named(record.run.config.update))
            found.codes.extend([record.exit.exit_code] if record.HasField("exit") else [])
        if found.codes:
            break
        time.sleep(0.1)
    return found


@pytest.mark.slow
def test_weights_and_biases_offline_after_kill_9(tmp_path: Path) -> None:
    plan = killed("wandb", tmp_path)
    assert len(list(tmp_path.glob("wandb/offline-run-*"))) == 1
    (run,), (planned,) = execute(plan, workers=1), plan
    curves, final = recorded(run)
    for _ in range(2):
        found = read_wandb(tmp_path)
        assert found.curves == curves
        assert {name: found.summary[name] for name in final} == final and found.summary["status"] == "finished"
        settings = {name: value for name, value in found.settings.items() if not name.startswith("_")}
        assert settings == settings_of(planned)
        assert found.codes == [0]
        machine = (f'"{os.uname().nodename}"', str(tmp_path))
        assert not any(each in found.text for each in machine), "nothing is said of the machine"
        execute(Plan.open(tmp_path), workers=1)  # after which the record must be the same, and the only one


# MLflow


def read_mlflow(folder: Path) -> tuple[Curves, str, dict[str, str], float]:
    """The curves of the only run, its status, its parameters, and how many seconds it says to have taken."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("tracked")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    history = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    curves = {name: [(metric.step, metric.value) for metric in history[name]] for name in history}
    assert run.info.run_name == "FedStaleWeight (buffer=2), seed 3"
    return curves, run.info.status, run.data.params, ((run.info.end_time or 0) - run.info.start_time) / 1000


def taken(name: str) -> str:
    """What MLflow makes of a name: it takes no per cent sign."""
    return name.replace("%", "_")


@pytest.mark.slow
def test_mlflow_with_a_local_store_after_kill_9(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = killed("mlflow", tmp_path / "runs")
    (run,), (planned,) = execute(plan, workers=1), plan
    assert sorted(file.name for file in tmp_path.iterdir()) == ["runs"]
    expected, final = recorded(run)
    for _ in range(2):
        curves, status, parameters, seconds = read_mlflow(tmp_path / "runs")
        whole = {**expected, **{name: [(17, value)] for name, value in final.items()}}
        assert curves == {taken(name): curve for name, curve in whole.items()}
        assert status == "FINISHED"
        assert parameters == {taken(name): str(value) for name, value in settings_of(planned).items()}
        assert seconds == pytest.approx(run.virtual_time, abs=1e-3)
        execute(Plan.open(plan.folder), workers=1)  # after which nothing must have changed


@pytest.mark.slow
def test_a_tracking_server_that_is_not_there_stops_the_tracking_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(Plan(training(track=()), (3,), tmp_path / "plain"), new=True, workers=1)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nowhere://127.0.0.1:9")
    execute(Plan(training(track="mlflow"), (3,), tmp_path / "tracked"), new=True, workers=1)
    words = capsys.readouterr().err
    assert words.startswith("tracking by mlflow has stopped, the run continues: ") and words.count("\n") == 1
    (one,), (other,) = (Plan.open(tmp_path / each) for each in ("plain", "tracked"))
    assert contents(one.folder) == contents(other.folder)
    assert not list(tmp_path.glob("**/mlflow.db"))
