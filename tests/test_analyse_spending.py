"""What clients of a run have paid: against the recorded tasks, one by one; and who gets no more tasks."""

import sys
from pathlib import Path

import numpy as np
import pytest

from fairlag.analyse import spending as module
from fairlag.analyse.spending import private, spending
from fairlag.lab.run import Run
from fairlag.privacy.accounting import epsilon, loss
from tests.support.runs import NOISE, noisy


@pytest.fixture(scope="module")
def budgeted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return noisy(tmp_path_factory.mktemp("budgeted") / "runs", privacy={**NOISE, "budget": 6.0}, aggregations=60)


def test_every_client_pays_for_the_squares_of_its_weights(budgeted: Run) -> None:
    found = spending(budgeted)
    assert found is not None
    merged = budgeted.tasks[budgeted.tasks["outcome"] == "aggregated"]
    weights = merged.groupby(["client", "aggregation"])["weight"].sum()
    bound = budgeted.meta["largest_weight"]
    for place, client in enumerate(found.clients.tolist()):
        mine = [float(each) for each in weights.get(client, [])]
        assert found.last[place] == pytest.approx(epsilon(loss(mine, noise=2.0, bound=bound), 1e-5), rel=1e-5)
    early = merged[merged["aggregation"] <= found.versions[9]].groupby(["client", "aggregation"])["weight"].sum()
    mine = [float(each) for each in early[0]]
    assert found.epsilon[9, 0] == pytest.approx(epsilon(loss(mine, noise=2.0, bound=bound), 1e-5), rel=1e-5)


def test_points_are_spread_over_the_run(tmp_path: Path) -> None:
    run = noisy(tmp_path / "runs")
    found = spending(run)
    assert found is not None and found.budget is None and not found.stopped.any()
    assert found.versions[-1] == run.version == 250 and len(found.versions) == len(found.epsilon) == 100
    assert np.all(np.diff(found.versions) > 0) and np.all(np.diff(found.epsilon, axis=0) >= 0)
    assert (found.groups, found.group_of.tolist()) == (("fast", "slow"), [0] * 4 + [1] * 2)
    assert np.all(found.duration[:4] < 2) and np.all(found.duration[4:] >= 3)


def test_clients_whose_budget_is_spent_get_no_more_tasks(budgeted: Run) -> None:
    found = spending(budgeted)
    assert found is not None and found.budget == 6.0
    assert 0 < found.last.max() <= 6.0
    assert found.stopped.tolist() == [True] * 4 + [False] * 2
    tasks = budgeted.tasks
    for client, stopped in zip(found.clients, found.stopped, strict=True):
        idle = budgeted.virtual_time - tasks.loc[tasks["client"] == client, "ended"].max()
        assert (idle > 9) == stopped


def test_few_points_if_there_are_many_clients(budgeted: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = spending(budgeted)
    monkeypatch.setattr(module, "_ROOM", 13)
    few = spending(budgeted)
    assert exact is not None and few is not None
    assert few.versions.tolist() == [30, 60]
    assert few.last == pytest.approx(exact.last, rel=1e-5)


def test_nothing_is_paid_without_noise(tmp_path: Path) -> None:
    assert private(noisy(tmp_path / "plain", privacy=None)) is None
    clipped = noisy(tmp_path / "clipped", privacy={"clip": 1.0})
    assert spending(clipped) is None and private(clipped) is None


def test_without_the_library_the_reason_is_told(budgeted: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    found = private(budgeted)
    assert found is not None and found.paid is None and len(found.sizes.size) == budgeted.version
    assert "pip install 'fairlag[privacy]'" in found.unknown
