"""Attackers in a run: the same bytes on every executor and through a stop, and only attackers' updates change."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlag.core.types import Dispatch, Update
from fairlag.core.vector import Vector
from fairlag.errors import InputError, Interrupted
from fairlag.execute.misbehaving import Misbehaving
from fairlag.lab import loop
from fairlag.lab.executors import ExecutorChoice
from fairlag.lab.experiment import Experiment, parse
from fairlag.lab.plan import Plan
from fairlag.lab.resources import Resources
from fairlag.lab.serialise import written
from fairlag.lab.simulate import execute
from fairlag.learn.behave import BEHAVIOURS
from fairlag.learn.behave import parse as behaviour
from tests.support.experiments import fast_and_slow
from tests.support.resuming import CtrlC, contents

KINDS = ("sign_flip(3)", "scale(2)", "noise(0.1)", "label_flip", "lie(1.5)", "free_ride(zeros)", "free_ride(last_step)")
EVERY_KIND = [{"group": kind, "count": 1, "delay": "uniform(1, 3)", "behaviour": kind} for kind in KINDS]
"""One group per behaviour."""
LENGTH = 12
CNN = "tests.support.models:normalised_cnn"


def attacked(kind: str | None, model: str = "mlp", **changes: Any) -> Experiment:
    """Five honest clients and two attackers on digits."""
    attackers = {"group": "attackers", "count": 2, "delay": "uniform(1, 3)"}
    return parse(
        {
            "name": "attacked",
            "aggregations": LENGTH,
            "clients": [*fast_and_slow(3, 2), attackers if kind is None else {**attackers, "behaviour": kind}],
            "strategies": [{"use": "fedstaleweight", "buffer": 3}],
            "data": {"use": "digits", "partition": "iid"},
            "model": {"use": model},
            "local": {"steps": 2, "batch": 16, "lr": 0.1},
            "evaluate": {"every": 4, "sample": 100},
            **changes,
        }
    )


@pytest.mark.parametrize("model", ["mlp", CNN])
def test_workers_and_a_stop_give_the_bytes_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setattr(loop, "_LOOK", 0.0)  # looks up after every event
    whole = attacked(None, model, clients=[*fast_and_slow(3, 2), *EVERY_KIND])
    plans = {how: Plan(whole, (3,), tmp_path / how) for how in ("alone", "workers", "stopped")}
    execute(plans["alone"], new=True, workers=1)
    execute(plans["workers"], new=True, workers=2)
    with pytest.raises(Interrupted):
        execute(plans["stopped"], new=True, workers=1, watch=CtrlC(LENGTH // 2))
    execute(Plan.open(tmp_path / "stopped"), workers=1)
    alone, workers, stopped = (contents(next(iter(plan)).folder) for plan in plans.values())
    assert workers == alone
    assert stopped == alone


def test_no_behaviour_is_left_out_here() -> None:
    assert {kind.partition("(")[0] for kind in KINDS} == set(BEHAVIOURS)


def test_an_honest_experiment_is_written_as_before() -> None:
    assert "behaviour" not in written(attacked(None))


@pytest.mark.parametrize(("kind", "direct"), [(None, True), ("label_flip", True), ("sign_flip(3)", False)])
def test_compiled_loops_leave_replaced_updates_to_the_reference(kind: str | None, direct: bool) -> None:
    """They ask the executor for its learner, and call it directly if there is one."""
    resources = Resources(attacked(kind), ExecutorChoice("serial"))
    (use,) = resources.experiment.strategies
    with closing(resources):
        executor = resources.executor(resources.setting(0), resources.experiment.strategy(use))
        assert executor is not None
        assert (executor.learner is not None) == direct


class _Told:
    """An executor whose updates are given: a row per task."""

    learner = None

    def __init__(self, rows: list[list[float]]) -> None:
        self._rows = rows

    def submit(self, task: Dispatch, parameters: Vector, due: float) -> None: ...

    def result(self, task: Dispatch) -> Update:
        return Update(np.array(self._rows[task.task], np.float32))

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None: ...


def test_a_liar_knows_the_last_honest_updates_and_never_those_of_attackers() -> None:
    rows = [[1.0], [100.0], [3.0], [5.0], [0.0]]
    senders = [0, 9, 1, 0, 9]
    executor = Misbehaving(_Told(rows), {9: behaviour("lie(1, window=2)")}, seed=0, parameters=1)  # type: ignore[arg-type]
    sent = []
    for number, client in enumerate(senders):
        task = Dispatch(number, client, 0, 0, 0.0)
        executor.submit(task, np.zeros(1, np.float32), 0.0)
        sent.append(executor.result(task).delta.tolist())
    assert sent == [[1.0], [100.0], [3.0], [5.0], [3.0]]  # mean 4, deviation 1, of 3 and 5


def test_statistics_stay_as_trained() -> None:
    executor = Misbehaving(_Told([[1.0, 5.0]]), {0: behaviour("sign_flip(2)")}, seed=0, parameters=1)  # type: ignore[arg-type]
    task = Dispatch(0, 0, 0, 0, 0.0)
    executor.submit(task, np.zeros(2, np.float32), 0.0)
    assert executor.result(task).delta.tolist() == [-2.0, 5.0]


def test_wrong_labels_are_those_of_attackers_only() -> None:
    resources = Resources(attacked("label_flip"))
    placement = resources.setting(0).placement
    assert placement is not None
    labels, told = resources.data.labels, placement.told(resources.data.labels, 10)
    wrong = np.concatenate([placement.of(5), placement.of(6)])
    assert (told[wrong] == 9 - labels[wrong]).all()
    others = np.setdiff1d(np.arange(len(labels)), wrong)
    assert (told[others] == labels[others]).all()


def test_label_flip_needs_classes() -> None:
    with pytest.raises(InputError, match="label_flip needs labels that are classes"):
        Resources(attacked("label_flip", task={"use": "regression"})).setting(0)


def test_a_behaviour_that_cannot_be_read_names_its_group() -> None:
    with pytest.raises(InputError, match="behaviour of group 'attackers': there is no behaviour 'flip'"):
        attacked("flip")
