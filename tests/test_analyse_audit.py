"""The audit: what it finds on fleets whose answer is known, and that workers change nothing."""

import math
import sys
from dataclasses import asdict, replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from fairlag import zoo
from fairlag.analyse import fairness, trial
from fairlag.analyse.audit import StrategyAudit, audit
from fairlag.analyse.case import Case
from fairlag.analyse.effort import Compiling
from fairlag.analyse.evidence import Influence
from fairlag.analyse.incentives import FACTORS, Incentive, judge
from fairlag.analyse.trial import Bench, Trial, influence, observe, simulated
from fairlag.core.strategy import Strategy
from fairlag.errors import InputError, StrategyError
from fairlag.fleet.clients import Fleet
from fairlag.lab.experiment import Experiment, load, parse
from fairlag.report.answer import answer
from fairlag.report.remarks import remarks
from fairlag.report.tables import audit_table
from fairlag.rules.select import all_idle
from fairlag.rules.trigger import count
from fairlag.rules.weigh import constant, normalised


def paper(*uses: dict[str, object], aggregations: int = 4000, racer: bool = False) -> Experiment:
    racers = [{"group": "racer", "count": 1, "delay": "uniform(0.1, 0.2)"}] if racer else []
    return parse(
        {
            "name": "paper",
            "aggregations": aggregations,
            "clients": [
                *racers,
                {"group": "fast", "count": 10 - len(racers), "delay": "uniform(1, 2)"},
                {"group": "slow", "count": 5, "delay": "uniform(8, 12)"},
            ],
            "strategies": list(uses),
        }
    )


def groups(result: StrategyAudit) -> dict[str, tuple[bool, float, float]]:
    return {
        group.name: (group.incentive.truthful, group.incentive.best_throttle, group.incentive.throttle_gain)
        for group in result.groups
    }


@pytest.fixture(scope="module")
def racing() -> dict[str, StrategyAudit]:
    experiment = paper({"use": "fedstaleweight"}, {"use": "fairshare"}, aggregations=1500, racer=True)
    return {each.use: each for each in audit(experiment)}


def test_fedstaleweight_tempts_a_client_that_is_much_faster_than_the_rest(racing: dict[str, StrategyAudit]) -> None:
    found = groups(racing["fedstaleweight"])
    truthful, throttle, gain = found["racer"]
    assert not truthful
    assert 4 <= throttle <= 12  # the closed form says 7.7
    assert gain > 2  # several-fold
    assert racing["fedstaleweight"].groups[0].throttle_predicted == pytest.approx(7.675, abs=0.001)
    assert found["fast"] == found["slow"] == (True, 1.0, 0.0)


def test_nobody_gains_under_fairshare(racing: dict[str, StrategyAudit]) -> None:
    assert set(groups(racing["fairshare"]).values()) == {(True, 1.0, 0.0)}
    assert racing["fairshare"].jain > 0.999


def test_who_pays_is_told_by_what_groups_are_entitled_to() -> None:
    weighed: dict[str, Any] = {"use": "fairshare", "importance": {"slow": 2.0}}
    options: dict[str, Any] = {"seeds": 2, "incentive_updates": 1}
    (fair,) = audit(paper(weighed, aggregations=2000), **options)
    assert [group.entitled for group in fair.groups] == pytest.approx([1 / 2, 1 / 2])
    assert [group.fair for group in fair.groups] == pytest.approx([2 / 3, 1 / 3])
    assert "no group has clearly less than its fair share" in answer([fair])[0]
    (capped,) = audit(paper({**weighed, "cap": 1.01}, aggregations=2000), **options)
    assert "the group slow gets too little" in answer([capped])[0] and "0.500 would be fair" in answer([capped])[0]


def test_workers_change_nothing() -> None:
    experiment = load("demo").checked(aggregations=60)
    alone = [each.as_json() for each in audit(experiment, seeds=2, workers=1, incentive_updates=10_000)]
    together = [each.as_json() for each in audit(experiment, seeds=2, workers=2, incentive_updates=10_000)]
    assert alone == together


def test_an_experiment_is_given_as_to_simulate(tmp_path: Path) -> None:
    tables: dict[str, Any] = {
        "name": "tables",
        "aggregations": 5,
        "clients": [{"group": "all", "count": 3, "delay": "uniform(1, 2)"}],
        "strategies": [{"use": "fedstaleweight", "buffer": 3}],
    }
    file = tmp_path / "mine.toml"
    file.write_text(
        'name = "tables"\naggregations = 5\nclients = [{group = "all", count = 3, delay = "uniform(1, 2)"}]\n'
        'strategies = [{use = "fedstaleweight", buffer = 3}]\n'
    )
    one, *others = (audit(given, seeds=1, incentive_updates=10) for given in (parse(tables), tables, file, str(file)))
    assert [each[0].as_json() for each in others] == [one[0].as_json()] * 3
    assert len(audit("demo", seeds=1, incentive_updates=10)) == 3
    with pytest.raises(
        InputError, match=r"^an experiment was given as 7, it must be an Experiment, its tables, a file"
    ):
        audit(7)  # type: ignore[arg-type]


def test_predictions_stand_beside_what_was_simulated() -> None:
    (result,) = audit(
        paper({"use": "fedbuff", "buffer": 5, "concurrency": 6}, aggregations=3000), seeds=2, incentive_updates=20_000
    )
    for group in result.groups:
        assert group.staleness == pytest.approx(group.staleness_predicted, rel=0.03)
        assert group.share == pytest.approx(group.share_predicted, rel=0.03)
        assert group.histogram.sum() == round(group.share * result.updates * 2)


def test_every_client_has_its_numbers() -> None:
    (result,) = audit(paper({"use": "buffered_fedavg"}, aggregations=2000), seeds=1, incentive_updates=10_000)
    assert result.shares.sum() == pytest.approx(1) and result.influence == pytest.approx(result.shares)
    assert result.staleness[:10] == pytest.approx(np.full(10, 1.95), abs=0.1)
    assert result.staleness[10:] == pytest.approx(np.full(5, 14.13), abs=1.0)
    assert result.weights == (0.2, 0.2)
    assert result.jain == pytest.approx(0.762, abs=0.002)


def test_a_delay_per_step_is_audited_as_the_same_delay_times_the_steps() -> None:
    def audited(racer: dict[str, object], slow: dict[str, object], updates: int = 600_000, **tables: object) -> Any:
        clients = [
            {"group": "racer", "count": 1, **racer},
            {"group": "fast", "count": 2, "delay": "uniform(1, 2)"},
            {"group": "slow", "count": 1, "upload": "uniform(1, 9)", **slow},
        ]
        uses = [{"use": "fedstaleweight", "fresh": False}, {"use": "fedbuff", "concurrency": 3}]
        fleet = {"name": "steps", "aggregations": 100, "model_bytes": 1_000_000, "clients": clients}
        experiment = parse({**fleet, "strategies": uses, **tables})
        options: dict[str, Any] = {"incentive_updates": updates, "incentive_error": 0.9, "compiled": True}
        return [asdict(each) for each in audit(experiment, seeds=2, **options)]

    racer, slow = "uniform(0.1, 0.2)", "lognormal(3, 0.5)"
    steps = {"delay": slow, "delay_per": "step", "steps": 3}
    per_step = audited({"delay": racer, "delay_per": "step"}, steps, local={"steps": 4})
    per_task = audited({"delay": f"scaled(4, {racer})"}, {"delay": f"scaled(3, {slow})"})
    assert all(each["throttling"]["aggregations"][1] > 0 for each in per_step)
    np.testing.assert_equal(per_step, per_task)
    # Neither what is simulated nor what is predicted would be the same without the steps.
    one_step = audited({"delay": racer}, {"delay": slow}, updates=0)
    for key in ("metrics", "staleness_predicted", "share_predicted", "throttle_predicted"):
        assert per_step[0]["groups"][0][key] != one_step[0]["groups"][0][key]


def test_synchronous_rounds_have_no_staleness() -> None:
    (result,) = audit(paper({"use": "fedavg", "cohort": 5}, aggregations=200), seeds=1, incentive_updates=10_000)
    assert [group.staleness for group in result.groups] == [0.0, 0.0]
    assert [group.staleness_predicted for group in result.groups] == [0.0, 0.0]
    assert result.updates == 1000


def test_a_run_until_a_time() -> None:
    experiment = parse(
        {
            "name": "short",
            "until_time": 60.0,
            "clients": [{"group": "all", "count": 4, "delay": 1}],
            "strategies": [{"use": "buffered_fedavg", "buffer": 2}],
        }
    )
    (result,) = audit(experiment, seeds=1)
    assert result.virtual_time == 60.0
    assert result.updates == 4 * 60
    assert result.reasons == ("time 60.0 was reached",)


def test_one_lonely_client() -> None:
    experiment = parse(
        {
            "name": "lonely",
            "aggregations": 10,
            "clients": [{"group": "all", "count": 1, "delay": "exponential(1)"}],
            "strategies": [{"use": "fedstaleweight", "buffer": 1}],
        }
    )
    (result,) = audit(experiment, seeds=1)
    assert (result.jain, result.groups[0].influence) == (1.0, 1.0)
    assert result.groups[0].incentive.truthful


def judged(rows: Any, updates: Any, factors: tuple[float, ...] = FACTORS, before: Any = None) -> Incentive:
    return judge(np.array(rows), np.array(rows if before is None else before), np.array(updates), factors)


def test_a_gain_within_the_error_is_none() -> None:
    assert judged([[0.1, 0.12], [0.1, 0.09], [0.1, 0.11]], [10_000.0, 10_000.0], (1.0, 2.0)).truthful
    # The same mean gain without noise counts, unless the run is too short to tell.
    steady = [[0.1, 0.107], [0.1, 0.107], [0.1, 0.107]]
    assert not judged(steady, [10_000.0, 10_000.0], (1.0, 2.0)).truthful
    assert judged(steady, [10_000.0, 10.0], (1.0, 2.0)).truthful
    # Nor does it count if it is still moving by as much: its own past may not have been forgotten yet.
    assert judged(steady, [10_000.0, 10_000.0], (1.0, 2.0), before=[[0.1, 0.1]] * 3).truthful


def test_a_client_that_is_never_heard_gains_nothing() -> None:
    assert judged(np.zeros((5, len(FACTORS))), np.zeros(len(FACTORS))).truthful


def test_the_best_of_several_gains_is_named() -> None:
    rows = np.array([[1.0, 2.0, 4.7, 3.0]] * 4) * np.array([[1.0], [1.1], [0.9], [1.0]])
    found = judged(rows, np.full(4, 1000.0), (1.0, 2.0, 8.0, 20.0))
    assert (found.best_throttle, round(found.throttle_gain, 6)) == (8.0, 3.7)


def test_an_audit_says_which_strategies_read_what_only_training_makes() -> None:
    uses: list[dict[str, object]] = [{"use": name} for name in ("asyncfeded", "pisces", "safa", "fairshare")]
    experiment = paper(*uses, aggregations=20)
    audits = audit(experiment, seeds=1, incentive_updates=10)
    assert [each.unseen for each in audits] == [True, True, False, False]
    console = Console(width=200, record=True, file=StringIO())
    console.print(audit_table(experiment, audits, 1))
    text = console.export_text()
    assert "AsyncFedED, Pisces: it reads updates or losses, which exist only in training" in text


def test_where_there_is_no_closed_form_nothing_is_predicted() -> None:
    (result,) = audit(paper({"use": "safa"}, aggregations=20), seeds=1, incentive_updates=10)
    assert all(math.isnan(group.staleness_predicted) for group in result.groups)
    assert result.as_json()["groups"]["slow"]["staleness_predicted"] is None


def test_the_compiled_loop_changes_nothing() -> None:
    clients = [{"group": "all", "count": 3, "delay": "exponential(2)"}]
    uses = [
        {"use": "fedstaleweight", "buffer": 2},
        {"use": "fedbuff", "buffer": 2, "concurrency": 2},
        {"use": "ringmaster", "max_delay": 2},
        {"use": "fedfix"},
    ]
    experiment = parse({"name": "small", "aggregations": 100, "clients": clients, "strategies": uses})

    def audited(**options: Any) -> list[str]:
        found = audit(experiment, seeds=2, incentive_updates=25_000, incentive_error=0.9, **options)
        assert all(each.throttling.tried for each in found)
        return [repr(asdict(each)) for each in found]

    assert audited(compiled=True) == audited(compiled=False) == audited(compiled=True, workers=2)


@pytest.mark.parametrize(
    "strategy",
    [zoo.rennala(buffer=3), zoo.malenia(), zoo.ringmaster(max_delay=3), zoo.ace(), zoo.fedfa(), zoo.fedstale(cohort=3)],
    ids=str,
)
def test_a_trial_observes_the_same_in_the_compiled_loop(strategy: Strategy, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = paper({"use": "fedavg"}).fleet(3)
    asked = Trial(0, 3, 120, None, client=12, stride=30)
    by_server = simulated(strategy, fleet, asked)
    with monkeypatch.context() as patch:
        patch.setattr(trial, "_by_the_server", None)  # it must not fall back
        compiled = simulated(strategy, fleet, replace(asked, compiled=True))
    assert len(by_server.marks) == 4
    np.testing.assert_equal(asdict(compiled), asdict(by_server))


@pytest.mark.parametrize(("compiled", "made"), [(False, 0), (True, 1)])
def test_before_workers_compile_it_is_done_once_here(
    compiled: bool, made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is said if it takes long; and not by all of them at once."""
    experiment, ready, make = paper({"use": "fedstaleweight"}), list[Trial](), trial._timeline

    def noted(strategy: Strategy, fleet: Fleet, asked: Trial) -> Any:
        ready.append(asked)
        return make(strategy, fleet, asked)

    trials = [Trial(0, seed, 50, None, compiled=compiled) for seed in (1, 2, 3)]
    with monkeypatch.context() as patch, Bench(experiment, workers=2) as bench:
        patch.setattr(trial, "_timeline", noted)
        found = [bench.map(influence, trials) for _ in range(2)]
    assert ready == trials[:made]
    assert found == [[influence(experiment, each) for each in trials]] * 2


def compiling(experiment: Experiment, *, updates: int | None = 0, wanted: bool | None = None) -> Compiling:
    return Compiling(experiment, seeds=1, incentive_updates=updates, wanted=wanted)


def test_long_audits_are_compiled_and_very_long_ones_go_to_the_workers() -> None:
    uses: list[dict[str, object]] = [{"use": "fedstaleweight", "buffer": 5}, {"use": "fedfix"}]
    short, long, endless = (paper(*uses, aggregations=count) for count in (4000, 40_000, 4_000_000))
    assert compiling(short).strategies == [False, False]
    assert compiling(short, wanted=True).strategies == compiling(long).strategies == [True, False]
    # Trying to throttle takes about half a million updates: none at all if fewer may be taken.
    assert compiling(short, updates=180_000).strategies == [False, False]
    assert compiling(short, updates=1_000_000).strategies == compiling(short, updates=None).strategies == [True, False]
    assert compiling(long, wanted=False).strategies == [False, False]
    assert compiling(long).here and not compiling(endless).here


def test_strategies_with_the_same_timeline_are_tried_once() -> None:
    uses: list[dict[str, object]] = [{"use": "fedavg", "cohort": 2}, {"use": "fedadam", "cohort": 2}]
    clients = [{"group": "all", "count": 3, "delay": "uniform(1, 2)"}]
    parts = list[str]()

    def audited(*chosen: dict[str, object]) -> list[dict[str, Any]]:
        def tell(part: str, done: int, total: int) -> None:
            parts.append(part)

        options: dict[str, Any] = {"seeds": 1, "incentive_updates": 60_000, "incentive_error": 0.9}
        tables = {"name": "alike", "aggregations": 100, "clients": clients, "strategies": list(chosen)}
        return [each.as_json() for each in audit(tables, progress=tell, **options)]

    together = audited(*uses)
    assert {part.split()[0] for part in parts} == {"fairness", "incentives", "timings", "identities"}
    assert not any("FedAdam" in part for part in parts)
    assert together == [found for use in uses for found in audited(use)]
    assert together[0]["groups"] == together[1]["groups"]


def test_tasks_that_are_lost_count_as_effort() -> None:
    clients = [{"group": "all", "count": 4, "delay": "uniform(1, 2)", "vanish": 0.8, "away": 1}]
    uses = [{"use": "buffered_fedavg", "buffer": 2}]
    experiment = parse({"name": "lossy", "aggregations": 200, "clients": clients, "strategies": uses})
    seen = observe(experiment, Trial(0, 0, 200, None))
    merged = int(seen.updates.sum())
    assert seen.lost > 3 * merged
    with Bench(experiment) as bench:
        asked, given = (Case(experiment, bench, 0, [seen], False, budget) for budget in (None, 5000))
    assert asked.effort(compiled=9_000_000, server=100_000) == int(100_000 * merged / (merged + seen.lost))
    assert given.effort(compiled=1, server=1) == 5000


def test_without_numba_the_reference_does_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    experiment = paper({"use": "fedstaleweight"}, aggregations=50)
    assert compiling(experiment, wanted=True).strategies == [False]
    (result,) = audit(experiment, seeds=1, incentive_updates=10, compiled=True)
    assert result.updates == 250
    assert "After `pip install 'fairlag[fast]'` they may have 33 times as many updates" in remarks([result])[-1]


def test_where_the_compiled_loop_is_in_doubt_the_reference_says_what_is_wrong() -> None:
    experiment = paper({"use": Strategy(all_idle(), count(5), normalised(constant(0.0)))}, aggregations=10)
    with pytest.raises(StrategyError, match="add up to 0"):
        audit(experiment, seeds=1, compiled=True)


def test_more_seeds_do_not_make_a_strategy_look_fairer() -> None:
    """Evenness is the mean of each run's, as in `compare`: of mean influence it would rise with the number of seeds."""
    clients = [{"group": "all", "count": 60, "delay": "exponential(1)"}]
    use = {"use": "buffered_fedavg", "buffer": 10}
    experiment = parse({"name": "short", "aggregations": 20, "clients": clients, "strategies": [use]})
    (many,) = audit(experiment, seeds=20, incentive_updates=1)
    each = [audit(experiment.checked(seed=seed), seeds=1, incentive_updates=1)[0] for seed in range(20)]
    for name in ("jain", "welfare", "largest_deviation"):
        assert getattr(many, name) == pytest.approx(np.mean([getattr(one, name) for one in each]))
    assert fairness.jain(many.influence) > many.jain + 0.1  # what was reported before
    assert len(Influence.of_audit(many).shares) == 20
    assert Influence.of_audit(many).jain.mean == pytest.approx(many.jain)


def test_fedfix_is_predicted_with_clients_that_wait() -> None:
    (result,) = audit(paper({"use": "fedfix"}, aggregations=500), seeds=2, incentive_updates=1)
    assert [group.staleness_predicted for group in result.groups] == [0.0, 1.5]  # before: 0.81 and 5.89
    for group in result.groups:
        assert group.staleness == pytest.approx(group.staleness_predicted, abs=0.05)
        assert group.share == pytest.approx(group.share_predicted, rel=0.03)


@pytest.mark.parametrize(
    ("use", "more"),
    [
        ({"use": "buffered_fedavg"}, {"availability": "alternating(20, 60)"}),
        ({"use": "buffered_fedavg"}, {"vanish": 0.1}),
        ({"use": "pisces"}, {}),  # its selection is not random
        ({"use": "fedbuff", "concurrency": 5, "max_staleness": 3}, {}),
    ],
)
def test_nothing_is_predicted_that_the_closed_forms_do_not_know(use: dict[str, Any], more: dict[str, Any]) -> None:
    clients = [{"group": "all", "count": 12, "delay": "uniform(1, 2)", **more}]
    experiment = parse({"name": "unknown", "aggregations": 30, "clients": clients, "strategies": [use]})
    (result,) = audit(experiment, seeds=1, incentive_updates=1)
    assert math.isnan(result.groups[0].staleness_predicted)
    assert math.isnan(result.groups[0].throttle_predicted) == bool(more)
