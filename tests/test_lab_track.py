"""What the engine tells of a run, and what trackers make of it: exact, each version once, whatever happens."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlag.analyse import fairness
from fairlag.errors import InputError, Interrupted
from fairlag.lab import loop
from fairlag.lab.events import Begun, Evaluated, Event, Kept, Over, Progress
from fairlag.lab.plan import Plan
from fairlag.lab.run import Run
from fairlag.lab.serialise import key_of
from fairlag.lab.simulate import execute, simulate
from fairlag.lab.track import ALL, TRACKERS, Tracker, listen
from tests.support.command import Call
from tests.support.experiments import idle
from tests.support.resuming import CtrlC, contents
from tests.support.trackers import look_often, training

Told = list[tuple[Any, ...]]


class Records(dict[str, Told]):
    """What a tracker was told of each run, by its key."""

    lost = 0
    """How many of the last points are gone whenever a record is opened again, as after a crash."""

    @property
    def only(self) -> Told:
        (told,) = self.values()
        return told


class Recorder:
    """A tracker that keeps what it is told."""

    records: Records

    def __init__(self, home: Path, run: Begun) -> None:
        self.told = self.records.setdefault(run.key, [])
        if self.told and self.told[-1][0] == "finished":
            self.held = ALL
            return
        points = [each for each in self.told if each[0] == "log"]
        self.told[:] = points[: max(0, len(points) - self.records.lost)]
        self.held = self.told[-1][1] if self.told else -1.0

    def log(self, version: int, time: float, metrics: dict[str, float]) -> None:
        self.told.append(("log", version, time, metrics))

    def end(self, status: str, version: int, time: float, metrics: dict[str, float]) -> None:
        self.told.append((status, version, time, metrics))


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> Records:
    """What a recorder was told that stands for MLflow."""
    look_often(monkeypatch)
    Recorder.records = Records()
    monkeypatch.setitem(listen._KINDS, "mlflow", (Recorder, "json"))
    return Recorder.records


# The stream


def test_a_run_is_told_from_its_beginning_to_its_end(tmp_path: Path, records: Records) -> None:
    plan, heard = Plan(training(track=()), (3,), tmp_path), list[Event]()
    execute(plan, new=True, workers=1, watch=lambda planned, event: heard.append(event))
    (planned,) = plan
    first, *middle, last = heard
    assert isinstance(first, Begun)
    assert (first.experiment, first.label, first.seed) == ("tracked", "FedStaleWeight (buffer=2)", 3)
    assert (first.folder, first.key) == (planned.folder, Run(planned.folder).meta["key"])
    chosen = ("seed", "strategy.buffer", "clients.slow 50%.labels", "local.lr", "evaluate.every", "data.use")
    assert [first.settings[name] for name in chosen] == [3, 2, "[0, 1, 2, 3]", 0.01, 5, "digits"]
    assert last == Over("finished", "17 aggregations were made")
    kept = [event.version for event in middle if isinstance(event, Kept)]
    assert kept == sorted(kept) and len(kept) > 10
    progress = [event for event in middle if isinstance(event, Progress)]
    evaluated = [event for event in middle if isinstance(event, Evaluated)]
    assert len(kept) + len(progress) + len(evaluated) == len(middle)
    curve = Run(planned.folder).curve()
    assert [(each.version, each.scores[""]["accuracy"]) for each in evaluated] == [
        *zip(curve["version"], curve["accuracy"], strict=True)
    ]
    assert progress[-1][:3] == (17, Run(planned.folder).virtual_time, 34)
    assert progress[-1].scores[""] == Run(planned.folder).accuracy()


@pytest.mark.parametrize(
    ("error", "status"), [(InputError("bad"), "failed"), (ZeroDivisionError("x"), "interrupted")], ids=str
)
def test_how_a_run_ends_is_what_its_folder_says(
    tmp_path: Path, error: Exception, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(loop.RunLoop, "to_the_end", fail)
    plan, heard = Plan(idle(), (0,), tmp_path, single=True), list[Event]()
    with pytest.raises(type(error)):
        execute(plan, new=True, watch=lambda _, event: heard.append(event))
    assert [type(event) for event in heard] == [Begun, Over]
    assert heard[-1] == Over(status, "bad" if status == "failed" else "")
    assert Run(tmp_path).status == status


def test_a_listener_of_ones_own_hears_simulate(tmp_path: Path) -> None:
    heard: list[Event] = []
    simulate(idle(), out=tmp_path, watch=heard.append)
    assert isinstance(heard[0], Begun) and isinstance(heard[-1], Over)


# What trackers are told


def expected(run: Run, version: int) -> dict[str, float]:
    """The metrics of a version, by pandas from the frames of the run."""
    tasks = run.tasks[run.tasks["aggregation"].fillna(10**9) <= version].merge(run.clients, on="client")
    found: dict[str, float] = {"updates": len(tasks)}
    for name in run.groups:  # all clients are always present
        found[f"entitled/group/{name}"] = (run.clients["group"] == name).mean()
    shares = tasks.groupby("client")["weight"].sum().reindex(run.clients["client"], fill_value=0.0)
    if len(tasks):
        found["jain"] = found["jain_entitled"] = shares.sum() ** 2 / (len(shares) * (shares**2).sum())
        found["staleness/all"] = float(tasks["staleness"].mean())
        for name in run.groups:
            mine = tasks[tasks["group"] == name]
            found[f"influence/group/{name}"] = mine["weight"].sum() / tasks["weight"].sum()
            if len(mine):  # what nobody sent is not late
                found[f"staleness/group/{name}"] = float(mine["staleness"].mean())
    curve = run.evaluations[run.evaluations["whole"] == run.evaluations["whole"].min()]
    for row in curve[curve["version"] == version].itertuples():
        whose = row.scope if row.scope == "all" else f"{row.scope}/{row.name}"
        found[f"accuracy/{whose}"] = row.accuracy
        if row.scope != "class":
            found[f"loss/{whose}"] = row.loss
    times = run.aggregations.set_index("version")["time"]
    return {**found, "virtual_time": times[version] if version else 0.0}


@pytest.mark.parametrize("sample", [100, "all"])
def test_points_are_what_the_frames_of_the_run_say(tmp_path: Path, records: Records, sample: Any) -> None:
    (run,) = execute(Plan(training(sample=sample), (0,), tmp_path), new=True, workers=1)
    *points, (status, version, time, final) = records.only
    assert [each[1] for each in points] == [0, 5, 10, 15, 17]
    for _, at, when, metrics in points:
        assert metrics == pytest.approx(expected(run, at), rel=1e-12)
        assert when == metrics["virtual_time"] == list(metrics.values())[-1]
    assert ("accuracy/all" in points[-1][3]) == (sample == "all")
    assert (status, version, time) == ("finished", 17, run.virtual_time)
    whole = {"final/accuracy/all": run.accuracy(), "final/accuracy/group/fast": run.accuracy("group", "fast")}
    assert {name: final[name] for name in whole} == whole
    assert final["final/jain"] == points[-1][3]["jain"]


def test_influence_is_told_beside_what_groups_were_entitled_to_by_then(tmp_path: Path, records: Records) -> None:
    away = {"group": "slow", "count": 2, "delay": "uniform(3, 4)", "leave": 30.0}
    clients = [{"group": "fast", "count": 4, "delay": "uniform(1, 2)"}, away]
    uses = [{"use": "fairshare", "buffer": 3, "importance": {"slow": 2.0}}]
    experiment = idle(aggregations=80, evaluate={"every": 20}, track=["mlflow"], clients=clients, strategies=uses)
    (run,) = execute(Plan(experiment, (0,), tmp_path), new=True)
    *points, _ = records.only
    early, late = (points[place][3] for place in (0, -1))
    assert early["entitled/group/slow"] == pytest.approx(1 / 2)
    frame = run.influence("group").set_index("group")
    assert late["entitled/group/slow"] == pytest.approx(frame.loc["slow", "entitled"]) and late["jain"] < 0.9
    everyone = run.influence()
    assert late["jain_entitled"] == pytest.approx(fairness.jain_entitled(everyone["weight"], everyone["entitled"]))


def test_without_training_who_is_listened_to_is_told(tmp_path: Path, records: Records) -> None:
    plan = Plan(idle(aggregations=12, evaluate={"every": 5}, track=["mlflow"]), (0,), tmp_path)
    (run,) = execute(plan, new=True)
    told = records.only
    assert [each[:2] for each in told] == [("log", 5), ("log", 10), ("log", 12), ("finished", 12)]
    assert told[1][3] == pytest.approx(expected(run, 10), rel=1e-12)


@pytest.mark.parametrize("lost", [0, 1, 99], ids=str)
def test_interrupted_and_resumed_nothing_comes_twice_and_nothing_is_missing(
    tmp_path: Path, records: Records, lost: int
) -> None:
    execute(Plan(training(), (3,), tmp_path / "whole"), new=True, workers=1)
    whole = records.only
    records.clear()
    records.lost = lost
    plan = Plan(training(), (3,), tmp_path / "stopped")
    with pytest.raises(Interrupted):
        execute(plan, new=True, workers=1, watch=CtrlC(8))
    assert records.only[-1][0] == "interrupted" and records.only[-1][3] == {}
    with pytest.raises(Interrupted):
        execute(Plan.open(plan.folder), workers=1, watch=CtrlC(12))
    execute(Plan.open(plan.folder), workers=1)
    assert records.only == whole
    execute(Plan.open(plan.folder), workers=1)
    assert records.only == whole, "of what is finished and told nothing is told again"


@pytest.mark.slow
def test_workers_change_nothing_of_what_is_told(tmp_path: Path, records: Records) -> None:
    execute(Plan(training(), (3,), tmp_path / "one"), new=True, workers=1)
    execute(Plan(training(), (3,), tmp_path / "two"), new=True, workers=2)
    alone, together = records.values()
    assert alone == together


def test_what_was_finished_untold_is_told_by_a_resume(tmp_path: Path, records: Records) -> None:
    """As after a kill between the end of a run and the words about it; or for a tracker that nobody thought of."""
    execute(Plan(training(track=()), (3,), tmp_path), new=True, workers=1)
    assert records == {}
    plan = Plan.open(tmp_path)
    execute(Plan(plan.experiment.checked(track="mlflow"), plan.seeds, tmp_path))
    assert [each[:2] for each in records.only] == [*(("log", each) for each in (0, 5, 10, 15, 17)), ("finished", 17)]


# A tracker that fails


class Failing(Recorder):
    at = ""

    def __init__(self, home: Path, run: Begun) -> None:
        super().__init__(home, run)
        self._fail("init")

    def log(self, version: int, time: float, metrics: dict[str, float]) -> None:
        super().log(version, time, metrics)
        self._fail("log")

    def end(self, status: str, version: int, time: float, metrics: dict[str, float]) -> None:
        self._fail("end")

    def _fail(self, at: str) -> None:
        if self.at == at:
            raise OSError("no such\nserver")


@pytest.mark.parametrize("at", ["init", "log", "end"])
def test_a_failing_tracker_stops_with_one_sentence_and_the_run_goes_on(
    tmp_path: Path, records: Records, at: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Failing.records, Failing.at = Records(), at
    monkeypatch.setitem(listen._KINDS, "wandb", (Failing, "json"))
    both = Plan(training(track=["wandb", "mlflow"]), (3, 4), tmp_path / "both")
    assert [run.status for run in execute(both, new=True, workers=1)] == ["finished"] * 2
    sentence = "tracking by wandb has stopped, the run continues: no such server\n"
    assert capsys.readouterr().err == sentence
    assert len(Failing.records.only) == {"init": 0, "log": 1, "end": 5}[at]
    assert [told[-1][0] for told in records.values()] == ["finished", "finished"]
    plain = Plan(training(track=()), (3,), tmp_path / "plain")
    execute(plain, new=True, workers=1)
    assert contents(next(iter(both)).folder) == contents(next(iter(plain)).folder)


# Identity, and where names of trackers come from


def test_tracking_makes_no_other_run_of_it(tmp_path: Path, records: Records) -> None:
    plain, tracked = training(track=()), training(track=["mlflow", "wandb"])
    assert key_of(plain) == key_of(tracked)
    one, other = (next(iter(Plan(each, (0,), tmp_path))) for each in (plain, tracked))
    assert (one.sha256, one.text) == (other.sha256, other.text)


def test_a_plan_remembers_its_trackers_and_a_single_run_of_it_asks_the_plan(tmp_path: Path, records: Records) -> None:
    plan = Plan(training(), (3,), tmp_path)
    with pytest.raises(Interrupted):
        execute(plan, new=True, workers=1, watch=CtrlC(8))
    (planned,) = plan
    single = Plan.open(planned.folder)
    assert (single.experiment.track, single.home) == (("mlflow",), tmp_path)
    assert (Plan.open(tmp_path).experiment.track, Plan.open(tmp_path).home) == (("mlflow",), tmp_path)
    execute(single, workers=1)
    assert records.only[-1][0] == "finished"


def test_a_plan_from_before_there_were_trackers(tmp_path: Path) -> None:
    Plan(idle(), (0,), tmp_path).save()
    written = json.loads((tmp_path / "plan.json").read_text())
    del written["track"], written["sha256"]
    (tmp_path / "plan.json").write_text(json.dumps(written))
    assert Plan.open(tmp_path).experiment.track == ()


def test_simulate_is_told_whom_to_tell(tmp_path: Path, records: Records) -> None:
    simulate(training(track=()), out=tmp_path / "a", workers=1, track="mlflow")
    assert records.only[-1][0] == "finished"
    with pytest.raises(InputError, match=r"^a run that is tracked by mlflow cannot be in a temporary folder: give"):
        simulate(training())
    run = simulate(training(), workers=1, track=())
    folder = run.folder
    assert run.status == "finished" and folder.is_dir()
    del run
    assert not folder.exists()


@pytest.mark.parametrize(
    ("track", "sentence"),
    [
        (["tensorbord"], "track: there is no tracker 'tensorbord': did you mean 'tensorboard'?"),
        (["x"], "track: there is no tracker 'x': choose from mlflow, tensorboard, wandb"),
        (3, "track: it is 3, but must be a list of mlflow, tensorboard, wandb"),
        ([3], "track: there is no tracker 3: choose from mlflow, tensorboard, wandb"),
    ],
    ids=str,
)
def test_what_is_no_tracker_is_refused(track: Any, sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        idle(track=track)
    assert str(refused.value) == sentence


def test_every_name_has_its_tracker() -> None:
    assert tuple(listen._KINDS) == TRACKERS
    kinds: list[type[Tracker]] = [kind for kind, _ in listen._KINDS.values()]
    assert len(set(kinds)) == 3


# The command line

IDLE = ["run", "racer", "--aggregations", "20", "--out", "out"]


@pytest.mark.parametrize("words", [["--track", "mlflw"], ["--set", "track=mlflw"]], ids=str)
def test_an_unknown_tracker_is_one_sentence(
    call: Call, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call(*IDLE, *words)
    assert (done.code, done.out, list(tmp_path.iterdir())) == (2, "", [])
    assert done.err == "fairlag: track: there is no tracker 'mlflw': did you mean 'mlflow'?\n"


@pytest.mark.parametrize(
    ("name", "library"), [("mlflow", "mlflow"), ("tensorboard", "tensorboard"), ("wandb", "wandb")], ids=str
)
def test_a_library_that_is_not_installed_is_named_before_anything_starts(
    call: Call, name: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for loaded in [each for each in sys.modules if each.startswith((library, "torch.utils.tensorboard"))]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.chdir(tmp_path)
    done = call(*IDLE, "--track", name)
    assert (done.code, done.out, list(tmp_path.iterdir())) == (2, "", [])
    assert done.err == f"fairlag: tracking by {name} needs the extra `track`: pip install 'fairlag[track]'\n"


def test_trackers_by_option_by_the_file_and_by_the_plan(
    call: Call, records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    few = ["--strategy", "fairshare", "--set", "evaluate.every=5"]
    assert call(*IDLE, *few).code == 0
    assert records == {}
    assert call("resume", "out", "--track", "mlflow").code == 0
    assert [each[1] for each in records.only] == [5, 10, 15, 20, 20]
    for place, words in (("b", ["--track", "mlflow"]), ("c", ["--set", 'track=["mlflow"]'])):
        records.clear()
        assert call(*IDLE[:-1], place, *few, *words).code == 0
        assert [each[1] for each in records.only] == [5, 10, 15, 20, 20]
