"""Sweeps: trials are ordinary experiments, no test example is used for tuning, and any interruption changes nothing."""

import json
import random
import subprocess
import sys
import time
import tomllib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import fairlag
from fairlag.errors import InputError
from fairlag.lab.executors import ExecutorChoice
from fairlag.lab.experiment import parse
from fairlag.lab.plan import Plan
from fairlag.lab.run import Run
from fairlag.lab.serialise import toml
from fairlag.lab.simulate import execute
from fairlag.lab.sweep import make as making
from fairlag.lab.sweep.make import make
from fairlag.lab.sweep.objective import Objective
from fairlag.lab.sweep.plan import SweepPlan
from fairlag.lab.sweep.result import FAILED, STOPPED, SweepResult, kept
from fairlag.text.scored import ACCURACY
from tests.support import sweeps
from tests.support.clusters import started
from tests.support.resuming import contents
from tests.support.sweeps import BUFFERED, FEDBUFF, made, outcome, quiet, swept

GUIDED: dict[str, Any] = {
    "over": {"lr": "log(0.05, 2)", "local": {"lr": "log(0.001, 0.5)"}},
    "search": "guided",
    "trials": 12,
    "seeds": 1,
    "tests": 1,
}


def result(plan: SweepPlan) -> SweepResult:
    found = kept(plan.folder, SweepResult)
    assert found is not None
    return found


def test_a_trial_is_an_ordinary_experiment_and_the_best_has_the_highest_mean(tmp_path: Path) -> None:
    plan = made(swept(), tmp_path / "sweep")
    for tuned, use in zip(result(plan).strategies, (BUFFERED, FEDBUFF), strict=True):
        means = []
        assert [each.setting for each in tuned.tried] == [
            {"lr": lr, "local.lr": local} for lr in (0.5, 1.0) for local in (0.02, 0.2)
        ]
        for tried in tuned.tried:
            tables = swept().data.model_dump() | {"validation": 0.2, "holdout_seed": 0}  # type: ignore[union-attr]
            local = swept().local.model_dump() | {"lr": tried.setting["local.lr"]}
            uses = ({**use, "lr": tried.setting["lr"]},)
            alone = swept().checked(data=tables, local=local, strategies=uses, sweep=None)
            runs = execute(Plan(alone, (0, 1), tmp_path / tried.folder), new=True, workers=1)
            assert [tried.result.values[run.seed] for run in runs] == [run.accuracy() for run in runs]
            means.append(sum(run.accuracy() for run in runs) / 2)
        assert tuned.best == means.index(max(means))


def test_the_best_settings_are_tested_with_fresh_seeds_on_all_data_and_can_be_exported(tmp_path: Path) -> None:
    plan = made(swept(), tmp_path / "sweep")
    best = parse(tomllib.loads(toml(plan.best(result(plan)))))
    assert best.data is not None and best.data.validation is None
    again = execute(Plan(best, (best.seed, best.seed + 1), tmp_path / "again"), new=True, workers=1)
    tests = [Run(planned.folder) for planned in plan.final(result(plan))]
    assert sorted({run.seed for run in tests}) == [2, 3] and not {2, 3} & set(plan.seeds)
    assert {run.label for run in tests} == {use.label for use in swept().strategies}
    assert [contents(run.folder) for run in tests] == [contents(run.folder) for run in again]
    assert tests[0].clients["examples"].sum() == 1438  # all but the test examples


def test_no_test_example_is_used_for_tuning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tuning with test examples that are nonsense gives the same bytes; their test does not."""
    data = {"use": "tests.support.sweeps:digits", "holdout": "official", "partition": "iid"}
    experiment = swept(BUFFERED, data=data)
    honest = made(experiment, tmp_path / "honest")
    monkeypatch.setattr(sweeps, "nonsense", True)
    blind = made(experiment, tmp_path / "blind")
    assert outcome(honest.folder) == outcome(blind.folder)
    scores = [[Run(each.folder).accuracy() for each in plan.final(result(plan))] for plan in (honest, blind)]
    assert min(scores[0]) > 0.5 > max(scores[1])


def test_seeds_differ_in_validation_examples_but_share_test_examples(tmp_path: Path) -> None:
    plan = SweepPlan(swept(), tmp_path)
    from fairlag.lab.resources import Resources

    judged, tests = (
        [set(Resources(each).setting(seed).placement.tests.tolist()) for seed in (0, 1, 2)]  # type: ignore[union-attr]
        for each in (plan.tuning, plan.plain)
    )
    assert judged[0] != judged[1] and tests[0] == tests[1] == tests[2]
    for seed in (0, 1, 2):
        placement = Resources(plan.tuning).setting(seed).placement
        assert placement is not None and not tests[0] & {*placement.holdings.tolist(), *placement.tests.tolist()}


def test_the_same_experiment_is_made_once(tmp_path: Path) -> None:
    """Two strategies under different names, of which one is swept over a value that the other has."""
    twin = {**BUFFERED, "label": "twin", "lr": 0.5}
    plan = made(swept({**BUFFERED, "lr": 1.0}, twin, over={"lr": [0.5, 1.0]}), tmp_path / "sweep")
    first, second = result(plan).strategies
    assert [each.folder for each in first.tried] == [each.folder for each in second.tried]
    assert len(list((plan.folder / "trials").iterdir())) == 2


def test_a_sweep_table_changes_no_run(tmp_path: Path) -> None:
    """Not even a byte of its directory."""
    experiment = swept(BUFFERED).checked(aggregations=4)
    folders = [tmp_path / "with", tmp_path / "without"]
    for folder, each in zip(folders, (experiment, experiment.checked(sweep=None)), strict=True):
        execute(Plan(each, (0,), folder, single=True), new=True, workers=1)
    assert contents(folders[0]) == contents(folders[1])
    assert (folders[0] / "experiment.json").read_bytes() == (folders[1] / "experiment.json").read_bytes()


def test_the_plan_of_a_sweep_reads_back(tmp_path: Path) -> None:
    plan = SweepPlan(swept(seeds=1, metric="group", over={"lr": "log(0.1, 1)"}, trials=7), tmp_path / "sweep")
    plan.save()
    assert SweepPlan.open(plan.folder).sweep == plan.sweep


def test_what_the_table_says_of_strategies_that_are_not_chosen_is_left_out(tmp_path: Path) -> None:
    over = {"lr": [1.0], "strategies.FedBuff.buffer": [2, 3], "strategies.buffered_fedavg.buffer": [2]}
    experiment = swept(BUFFERED, {**FEDBUFF, "label": "FedBuff"}, over=over)
    (space,) = SweepPlan(experiment.only(["fedbuff"]), tmp_path).spaces
    assert {key: values.ends for key, values in space.domains.items()} == {"lr": (1.0,), "buffer": (2, 3)}
    with pytest.raises(InputError, match="there is no 'fedbuf'; did you mean 'fedbuff'"):
        SweepPlan(experiment.checked(sweep={"over": {"strategies.fedbuf.buffer": [2]}}), tmp_path).spaces  # noqa: B018


@pytest.mark.parametrize("more", [{}, pytest.param(GUIDED, marks=pytest.mark.slow)], ids=["grid", "guided"])
def test_processes_change_nothing(tmp_path: Path, more: dict[str, Any]) -> None:
    one = made(swept(BUFFERED, **more), tmp_path / "one")
    two = made(swept(BUFFERED, **more), tmp_path / "two", workers=2)
    assert outcome(one.folder) == outcome(two.folder)
    for mine, other in zip(one.final(result(one)), two.final(result(two)), strict=True):
        assert contents(mine.folder) == contents(other.folder)


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["processes", "ray"])
def test_an_executor_of_tasks_changes_nothing(tmp_path: Path, executor: str) -> None:
    """Trials are made one after the other then, and the executor computes their tasks."""
    short: dict[str, Any] = {"over": {"lr": [0.5, 1.0]}, "seeds": 1, "tests": 1}
    one = made(swept(BUFFERED, **short), tmp_path / "one")
    with started(2) if executor == "ray" else nullcontext() as address:
        two = SweepPlan(swept(BUFFERED, **short), tmp_path / "two")
        make(two, ExecutorChoice(executor, 2, address), quiet, new=True)
    assert outcome(one.folder) == outcome(two.folder)


@pytest.mark.parametrize("more", [{}, GUIDED], ids=["grid", "guided"])
def test_an_interrupted_sweep_continues_with_the_same_bytes(tmp_path: Path, more: dict[str, Any]) -> None:
    whole = made(swept(BUFFERED, **more), tmp_path / "whole")
    plan, heard = SweepPlan(swept(BUFFERED, **more), tmp_path / "parts"), list[tuple[str, int]]()

    def interrupt(part: str, done: int, total: int) -> None:
        if (part, done) not in heard:
            heard.append((part, done))
            raise KeyboardInterrupt

    for _ in range(40):
        try:
            make(SweepPlan.open(plan.folder) if heard else plan, ExecutorChoice(workers=1), interrupt, new=not heard)
            break
        except KeyboardInterrupt:
            pass
    assert len(heard) > 4 and heard[-1][0] == "testing"
    assert outcome(plan.folder) == outcome(whole.folder)


def test_guided_search_stops_hopeless_trials_and_finds_a_better_setting_than_chance(tmp_path: Path) -> None:
    plan = made(swept(BUFFERED, **GUIDED), tmp_path / "sweep")
    (tuned,) = result(plan).strategies
    statuses = [each.result.status for each in tuned.tried]
    assert len(statuses) == 12 and STOPPED in statuses[5:] and STOPPED not in statuses[:5]
    stopped = next(each for each in tuned.tried if each.result.status == STOPPED)
    (run,) = (Run(each) for each in (plan.folder / "trials" / stopped.folder).glob("*seed0"))
    assert run.status == "interrupted" and run.version < 24
    import optuna

    study = optuna.load_study(study_name="Buffered FedAvg (buffer=2)", storage=f"sqlite:///{plan.folder}/optuna.sqlite")
    assert [trial.state.name for trial in study.trials] == [
        {"finished": "COMPLETE", "stopped": "PRUNED"}[each] for each in statuses
    ]
    winner = tuned.winner
    assert winner is not None and study.best_value == winner.result.value


def test_guided_search_without_its_extra_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match="guided search needs the extra `sweep`: pip install"):
        made(swept(BUFFERED, **GUIDED), tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_trials_that_diverge_are_counted_and_not_chosen(tmp_path: Path) -> None:
    plan = made(swept(BUFFERED, over={"lr": [1e300, 1.0]}), tmp_path / "sweep")
    (tuned,) = result(plan).strategies
    assert [each.result.status for each in tuned.tried] == [FAILED, "finished"] and tuned.best == 1
    assert "seed 0: " in tuned.tried[0].result.reason and "seed 1: " in tuned.tried[0].result.reason


def test_if_all_trials_diverge_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trial ended well; the first one: seed 0: "):
        made(swept(BUFFERED, over={"lr": [1e300]}), tmp_path / "sweep")


def test_a_budget_ends_after_whole_rounds_for_all_strategies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 40))
    monkeypatch.setattr(making, "monotonic", lambda: float(next(clock)))
    experiment = swept(over={"lr": [0.2, 0.4, 0.6, 0.8, 1.0, 1.2]}, seeds=1, tests=1, budget="30s")
    plan = made(experiment, tmp_path / "sweep")
    assert [len(each.tried) for each in result(plan).strategies] == [5, 5]


def test_objectives_of_a_run(tmp_path: Path) -> None:
    run = fairlag.simulate(swept(BUFFERED).checked(sweep=None), out=tmp_path / "run", workers=1)
    assert Objective.read(None, [ACCURACY]).of(run) == run.accuracy()
    assert Objective.read("loss", [ACCURACY]).of(run) == run.score("loss")
    groups = [run.accuracy("group", name) for name in run.groups]
    assert Objective.read("group", [ACCURACY]).of(run) == min(groups)
    curve = run.curve()
    middle = float(curve["accuracy"].iloc[len(curve) // 2])
    first = min(time for time, value in zip(curve["time"], curve["accuracy"], strict=True) if value >= middle)
    assert Objective.read(f"time:{middle}", [ACCURACY]).of(run) == first
    assert Objective.read("time:1", [ACCURACY]).of(run) is None


@pytest.mark.parametrize(
    ("metric", "sentence"),
    [
        ("acuracy", "the metric of a sweep is 'acuracy': did you mean 'accuracy'"),
        ("time:2", "the metric of a sweep is 'time:2': the accuracy to reach must be above 0 and at most 1"),
        ("time", "the metric of a sweep is 'time': the accuracy to reach must be above 0"),
    ],
)
def test_an_unknown_metric_is_one_sentence(metric: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        Objective.read(metric, [ACCURACY])
    assert sentence in str(error.value)


# Checkpoints are made every few milliseconds, so that kills hit runs between and during them.
PROGRAM = """
import sys
from pathlib import Path
from fairlag.lab import loop
from fairlag.lab.executors import ExecutorChoice
from fairlag.lab.sweep.make import make
from fairlag.lab.sweep.plan import SweepPlan
loop.CHECKPOINT, loop._COSTLY = 0.02, 0
if __name__ == "__main__":
    said = lambda part, done, total: print(part, done, flush=True)
    make(SweepPlan.open(Path(sys.argv[1])), ExecutorChoice(workers=int(sys.argv[2])), said, new=False)
"""


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, GUIDED], ids=["grid", "guided"])
def test_a_sweep_that_is_killed_five_times_ends_with_the_same_bytes(tmp_path: Path, more: dict[str, Any]) -> None:
    whole = made(swept(**more), tmp_path / "whole")
    plan, script, chance = SweepPlan(swept(**more), tmp_path / "killed"), tmp_path / "program.py", random.Random(0)
    plan.save()
    script.write_text(PROGRAM)
    kills = 0
    while kills < 5:
        process = subprocess.Popen([sys.executable, script, plan.folder, "2"], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.uniform(0, 0.3))
        process.kill()
        process.communicate()
        kills += 1
    subprocess.run([sys.executable, script, plan.folder, "2"], check=True, stdout=subprocess.DEVNULL)
    assert outcome(plan.folder) == outcome(whole.folder)
    for mine, other in zip(plan.final(result(plan)), whole.final(result(whole)), strict=True):
        assert contents(mine.folder) == contents(other.folder)


def test_a_damaged_result_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps({"objective": 1}))
    with pytest.raises(InputError, match=r"result.json' is damaged"):
        kept(tmp_path, SweepResult)
