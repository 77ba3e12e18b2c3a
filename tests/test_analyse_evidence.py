"""What figures are drawn from: exact numbers of small runs made by hand, and of one whose experiment is known."""

from math import inf, isnan
from pathlib import Path

import numpy as np
import pytest

from fairlag import simulate
from fairlag.analyse import theory
from fairlag.analyse.audit import audit
from fairlag.analyse.compare import repeated
from fairlag.analyse.evidence import (
    GroupStaleness,
    Influence,
    experiment_of,
    influence,
    influence_if_any,
    staleness,
    staleness_if_any,
)
from fairlag.analyse.fairness import gini, jain
from fairlag.analyse.predictions import predicted
from fairlag.analyse.timeline import Bar, timeline, timeline_if_any
from fairlag.core.types import Dispatch, Ended, Outcome
from fairlag.errors import InputError
from fairlag.lab.experiment import parse
from fairlag.lab.run import Run
from fairlag.lab.store import Store
from tests.support.experiments import LEAN
from tests.support.runs import bare, made, shuffled


def test_influence_is_sorted_by_group_and_kept_per_seed(tmp_path: Path) -> None:
    (strategy,) = repeated([made(tmp_path / "a"), made(tmp_path / "b", seed=1, finished=False), bare(tmp_path / "c")])
    found = influence(strategy)
    assert (found.groups, found.clients.tolist(), found.group_of.tolist()) == (("fast", "slow"), [0, 1, 2], [0, 0, 1])
    assert found.shares.tolist() == [[0.375, 0.25, 0.375], [0.5, 0.5, 0.0]]
    assert found.mean.tolist() == [0.4375, 0.375, 0.1875]
    assert found.deviation is not None
    assert found.deviation.tolist() == pytest.approx([0.125 / 2**0.5, 0.25 / 2**0.5, 0.375 / 2**0.5])
    assert found.jain.mean == pytest.approx((jain([0.375, 0.25, 0.375]) + jain([1, 1, 0])) / 2)
    assert found.fair == 1 / 3
    where, times = found.quantiles(0, 3)
    assert (where.tolist(), times.tolist()) == ([0, 0.5, 1], [[0.75, 0.9375, 1.125], [1.5, 1.5, 1.5]])
    assert found.entitlements is None and found.entitled.tolist() == [1 / 3] * 3
    assert found.jain_entitled == found.jain


def test_influence_of_groups_whose_clients_are_mixed(tmp_path: Path) -> None:
    found = influence(repeated([shuffled(tmp_path, tasks=5)])[0])
    assert found.clients.tolist() == [0, 2, 1, 3]
    assert found.mean.tolist() == [0.4, 0.2, 0.2, 0.2]
    assert found.deviation is None


def test_how_even_influence_is(tmp_path: Path) -> None:
    (strategy,) = repeated([made(tmp_path / "a"), made(tmp_path / "b", seed=1, finished=False)])
    found = influence(strategy)
    assert found.over_seeds(gini).mean == pytest.approx((gini([0.375, 0.25, 0.375]) + gini([1, 1, 0])) / 2)
    part, fair = found.of_group(0)
    assert (part.mean, fair) == (0.8125, 2 / 3)
    assert part.deviation == pytest.approx(0.375 / 2**0.5)
    curve = found.lorenz()
    assert curve is not None
    assert curve[0].tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert curve[1].tolist() == pytest.approx([0, 0.125, (0.625 + 0.5) / 2, 1])
    assert found.heard_by(1.0) == pytest.approx(0.4375 * 3)
    assert found.heard_by(0.0) == pytest.approx(0.375 * 3)


def test_negative_weights_have_no_evenness(tmp_path: Path) -> None:
    found = influence(repeated([bare(tmp_path, weight=-0.5)])[0])
    assert found.lorenz() is None
    assert found.over_seeds(gini).mean is None


def test_evidence_of_an_audit_is_that_of_its_run(tmp_path: Path) -> None:
    (audited,) = audit(parse(LEAN), seeds=1, incentive_updates=1)
    run = repeated([simulate(parse(LEAN), out=tmp_path / "run")])[0]
    mine, its = Influence.of_audit(audited), influence(run)
    assert (mine.groups, mine.clients.tolist(), mine.group_of.tolist()) == (
        its.groups,
        its.clients.tolist(),
        its.group_of.tolist(),
    )
    assert mine.mean.tolist() == pytest.approx(its.mean.tolist())
    assert mine.jain.mean == pytest.approx(its.jain.mean)
    assert [(each.name, each.counts.tolist()) for each in GroupStaleness.of_audit(audited)] == [
        (each.name, each.counts.tolist()) for each in staleness(run)
    ]
    assert GroupStaleness.of_audit(audited)[1].predicted == pytest.approx(staleness(run)[1].predicted)


def test_how_late_a_part_of_the_updates_is() -> None:
    found = GroupStaleness("slow", np.array([2, 0, 1, 1]), 2.0)
    assert [found.at_most(part) for part in (0.5, 0.51, 0.75, 0.95, 1.0)] == [0, 2, 2, 3, 3]
    assert isnan(GroupStaleness("slow", np.zeros(0, int), 2.0).at_most(0.5))


def test_staleness_is_counted_per_group_over_all_seeds(tmp_path: Path) -> None:
    runs = [made(tmp_path / "a"), made(tmp_path / "b", seed=1, finished=False)]
    fast, slow = staleness(repeated(runs)[0])
    assert (fast.name, fast.counts.tolist(), fast.mean, fast.cumulative.tolist()) == ("fast", [5], 0.0, [1.0])
    assert (slow.name, slow.counts.tolist(), slow.mean, slow.cumulative.tolist()) == ("slow", [0, 1], 1.0, [0.0, 1.0])
    assert isnan(slow.predicted)


def test_staleness_of_a_group_that_sent_nothing(tmp_path: Path) -> None:
    _, slow = staleness(repeated([made(tmp_path, finished=False)])[0])
    assert (slow.counts.tolist(), slow.cumulative.tolist(), isnan(slow.mean)) == ([], [], True)


def test_predicted_staleness_is_the_audits(tmp_path: Path) -> None:
    run = simulate(parse(LEAN), out=tmp_path / "run")
    experiment = experiment_of(run)
    assert (experiment.name, experiment.strategies[0].name) == ("lean", "fedbuff")
    durations = np.array([1.5] * 4 + [10.0] * 2)
    expected = theory.concurrent_staleness(durations, 3, 2)
    fast, slow = staleness(repeated([run])[0])
    assert (fast.predicted, slow.predicted) == pytest.approx((expected[0], expected[4]))
    assert slow.mean == pytest.approx(slow.predicted, rel=0.2)
    strategy = experiment.strategy(experiment.strategies[0])
    assert predicted(strategy, experiment.fleet(), 2).staleness.tolist() == expected.tolist()


def test_no_staleness_is_predicted_for_clients_that_come_and_go(tmp_path: Path) -> None:
    clients = [{"group": "fast", "count": 4, "delay": "uniform(1, 2)", "vanish": 0.1}]
    (fast,) = staleness(repeated([simulate(parse({**LEAN, "clients": clients}), out=tmp_path / "run")])[0])
    assert isnan(fast.predicted)
    assert fast.counts.sum() == 600


def test_nothing_to_show_is_one_sentence(tmp_path: Path) -> None:
    (strategy,) = repeated([bare(tmp_path)])
    for ask in (influence, staleness):
        with pytest.raises(InputError, match="none of its updates has been aggregated yet"):
            ask(strategy)
    assert influence_if_any(strategy) is None
    assert staleness_if_any(strategy) is None
    with pytest.raises(InputError, match="has no timeline: none of its tasks has ended yet"):
        timeline(strategy.runs[0])
    with pytest.raises(InputError, match=r"cannot be rebuilt: .* it has the key 'name', which is never written"):
        experiment_of(made(tmp_path / "made"))


def test_a_timeline_of_everything(tmp_path: Path) -> None:
    found = timeline(made(tmp_path))
    assert (found.begin, found.end, found.reach, found.sizes, found.population) == (0.0, 9.0, 9.0, (2, 1), 3)
    assert (found.clients.tolist(), found.group_of.tolist()) == ([0, 1, 2], [0, 0, 1])
    assert found.bars == (
        Bar(0, 0.0, 1.0, 0, "aggregated", 2.0, 0),
        Bar(1, 0.0, 2.0, 0, "aggregated", 2.0, 0),
        Bar(2, 0.0, 8.0, 0, "aggregated", 9.0, 1),
        Bar(0, 2.0, 9.0, 1, "aggregated", 9.0, 0),
        Bar(1, 2.0, 3.0, 1, "refused", inf, None, "too old"),
    )
    assert (found.aggregations.tolist(), found.every, found.whole) == ([2.0, 9.0], 1, False)
    assert found.versions.tolist() == [1, 2]


def test_a_timeline_of_a_window(tmp_path: Path) -> None:
    found = timeline(made(tmp_path), 1.5, 2.0)
    assert [(bar.lane, bar.begin) for bar in found.bars] == [(0, 0.0), (1, 0.0)]
    assert found.clients.tolist() == [1, 2]  # the first task of client 0 has ended, its second has not begun
    assert (found.begin, found.end, found.aggregations.tolist(), found.whole) == (1.5, 2.0, [2.0], True)
    assert timeline(Run(tmp_path), until=2.5).begin == 0.0
    late = timeline(Run(tmp_path), 8.5)
    assert ([bar.end for bar in late.bars], late.begin, late.end) == ([9.0], 8.5, 9.0)


def test_an_automatic_window_shows_about_a_hundred_tasks(tmp_path: Path) -> None:
    found = timeline(shuffled(tmp_path, clients=12, tasks=2400))
    assert (found.begin, found.end, len(found.bars)) == (0.0, 9.0, 108)
    assert len(found.aggregations) == 108
    assert found.whole


def test_a_timeline_goes_on_after_its_window_as_far_as_there_is_room(tmp_path: Path) -> None:
    run = shuffled(tmp_path, clients=12, tasks=2400)
    found = timeline(run, room=1000)
    assert (found.end, found.reach, len(found.bars)) == (9.0, 83.0, 996)  # 84 seconds would be of 1008 tasks
    assert (len(found.aggregations), found.every, found.versions[-1], found.whole) == (996, 1, 996, True)
    everything = timeline(run, room=5000)
    assert (everything.end, everything.reach, len(everything.bars), everything.whole) == (9.0, 200.0, 2400, True)
    short = timeline(run, room=1)
    assert (short.end, short.reach, len(short.bars)) == (9.0, 9.0, 108)
    few = timeline(run, room=500, lanes=2)
    assert (len(few.bars), few.reach, few.every, len(few.aggregations)) == (400, 200.0, 5, 480)


def test_a_run_without_a_timeline_has_none(tmp_path: Path) -> None:
    assert timeline_if_any(bare(tmp_path / "bare"), 100) is None
    found = timeline_if_any(made(tmp_path / "made"), 100)
    assert found is not None
    assert (found.end, len(found.bars)) == (9.0, 5)


def test_few_of_many_clients_are_chosen_evenly(tmp_path: Path) -> None:
    found = timeline(shuffled(tmp_path, clients=200, tasks=2400), lanes=10)
    assert found.clients.tolist() == [0, 40, 80, 120, 160, 1, 41, 81, 121, 161]
    assert found.group_of.tolist() == [0] * 5 + [1] * 5
    assert len(found.bars) == 110
    assert (found.end, found.every, len(found.aggregations)) == (11.0, 6, 366)


def test_a_small_group_leaves_its_lanes_to_the_others(tmp_path: Path) -> None:
    store = Store.create(
        tmp_path / "run",
        {"experiment": "demo", "label": "Lost", "use": "fedavg", "seed": 0, "aggregations": 1},
        experiment='{"name": "demo"}',
        groups=["one", "many"],
        group_of=np.array([0] + [1] * 20),
        examples=np.ones(21, int),
    )
    with store:
        for client in range(21):
            store.record(Ended(Dispatch(client, client, 0, 0, 0.0), 1.0, Outcome.LOST, "gone"))
        store.commit({}, "", 0, refusals={})
    found = timeline(Run(tmp_path / "run"), lanes=6)
    assert found.clients.tolist() == [0, 1, 5, 9, 13, 17]  # the only one, and every fourth
    assert {bar.outcome for bar in found.bars} == {"lost"}


@pytest.mark.parametrize(
    ("begin", "until", "words"),
    [
        (-1.0, None, "--from is -1, it must be a finite virtual time of at least 0"),
        (None, inf, "--until is inf, it must be"),
        (3.0, 2.0, "the window is from 3 to 2, it must end after it begins"),
        (10.0, None, "no task runs from 10: the last task of the run in .* ends at 9"),
        (20.0, 30.0, "no task runs from 20 to 30"),
    ],
)
def test_windows_that_show_nothing(tmp_path: Path, begin: float | None, until: float | None, words: str) -> None:
    with pytest.raises(InputError, match=words):
        timeline(made(tmp_path), begin, until)


def test_a_window_of_too_many_tasks_is_refused(tmp_path: Path) -> None:
    run = shuffled(tmp_path, clients=4, tasks=4400)
    with pytest.raises(InputError, match="holds more than 4,000 tasks of 4 clients"):
        timeline(run, 0, 2000)
