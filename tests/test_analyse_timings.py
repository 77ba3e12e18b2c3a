"""The search for a timing that pays: it finds what is there, accuses nobody else, and says what it left out."""

import json
import multiprocessing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fairlag.analyse.audit import StrategyAudit, audit
from fairlag.analyse.case import Case
from fairlag.analyse.incentives import Incentive, judge_pair
from fairlag.analyse.timings import Found, Search, Timings, leaving, plans
from fairlag.analyse.trial import Bench, Trial, influence, observe
from fairlag.core.buffer import Buffer
from fairlag.core.types import Floats
from fairlag.core.view import View
from fairlag.fleet.timing import Schedule, Throttle, Truthful
from fairlag.fleet.timing import parse as timing
from fairlag.lab.experiment import Experiment, load, parse
from fairlag.report.answer import answer
from fairlag.report.figures.incentives import brief_verdict, brief_words
from fairlag.runtime.compiled import available

fast_loops = pytest.mark.skipif(not available(), reason="needs the extra `fast`")

ACCOUNT = {"use": "fairshare", "estimator": "account", "cap": 2.0, "buffer": 2}
PATIENCE = {"use": "tests.test_analyse_timings:patience", "buffer": 2}
SIX = {"group": "all", "count": 6, "delay": "uniform(0.9, 1.1)"}


def patience(buffer: Buffer, view: View) -> Floats:
    """Pays whoever was silent longest: the square of how many versions a task took."""
    weights: Floats = np.square(buffer.staleness.astype(np.float64) + 1.0)
    return weights


def small(use: dict[str, Any], **tables: Any) -> Experiment:
    return parse({"name": "small", "aggregations": 2000, "clients": [SIX], "strategies": [use], **tables})


def searched(experiment: Experiment, **options: Any) -> StrategyAudit:
    (found,) = audit(experiment, seeds=1, **options)
    return found


@pytest.fixture(scope="module")
def patient() -> StrategyAudit:
    return searched(small(PATIENCE), incentive_updates=150_000)


def test_a_weighting_that_pays_for_silence_is_found_out(patient: StrategyAudit) -> None:
    """In rates, f² / f = f times as much as each of five others: f / (f + 5) of all weight instead of 1/6."""
    cheat = patient.groups[0].cheat
    slow = cheat.timing.pieces
    assert slow is not None and slow.factor(0.0, 0.0) == 64
    assert cheat.gain == pytest.approx(6 * 64 / 69 - 1, rel=0.15)
    assert cheat.gain > 6 * 20 / 25 - 1  # what the slowest constant throttling of the other trials gains
    assert cheat.error < cheat.gain
    told = patient.as_json()["groups"]["all"]
    assert (told["truthful"], told["best_timing"], told["timing_gain_at_most"]) == (False, str(cheat.timing), None)


@pytest.mark.parametrize("use", [ACCOUNT, {"use": "buffered_fedavg", "buffer": 2}, {"use": "fedavg", "cohort": 2}])
def test_nobody_is_accused_where_no_timing_pays(use: dict[str, Any]) -> None:
    """In runs so short that a client's last update is a twentieth of all."""
    for seed in range(3):
        found = searched(small(use, aggregations=80, seed=100 * seed), incentive_updates=100_000)
        (group,) = found.groups
        assert group.cheat.tried and group.cheat.truthful
        assert group.cheat.at_most < 1  # and it would have been noticed


@fast_loops
def test_the_hole_that_constant_throttling_does_not_show() -> None:
    """In the paper's fleet nobody gains by being slow throughout, but whoever is slow at first does."""
    uses = [{**ACCOUNT, "buffer": 5}, {"use": "fairshare", "estimator": "gap", "cap": 1.5}, {"use": "fedstaleweight"}]
    found = audit(load("demo").checked(strategies=uses, aggregations=1000), seeds=1)
    account, gap, staleness = ([group.cheat for group in each.groups] for each in found)
    assert [each.truthful for each in account] == [True, True]
    for each in (gap[0], staleness[0]):
        assert isinstance(each.timing, Schedule)
        first, *_, last = each.timing.factors
        assert first > 1 and last == 1
        assert each.gain > 0.2 > each.error
    assert all(group.incentive.truthful for each in found for group in each.groups)
    assert found[0].timings.tried == 274 and found[0].timings.left_out == ""


def test_the_gain_is_the_one_of_plain_pairs_of_runs(patient: StrategyAudit) -> None:
    """Two runs per seed that the search has no part in."""
    experiment, length = small(PATIENCE), patient.timings.aggregations[1]
    cheat, seeds = patient.groups[0].cheat, range(1, 1 + patient.timings.replications)
    shares = []
    for plan in ((), ((0, cheat.timing),)):
        seen = [observe(experiment, Trial(0, seed, length, None, plans=plan)) for seed in seeds]
        shares.append(np.mean([each.weights[0] / each.weights.sum() for each in seen]))
    assert cheat.gain == pytest.approx(shares[1] / shares[0] - 1, rel=1e-9)


def test_a_pair_is_judged_by_its_ratio_of_means_and_the_last_update() -> None:
    honest, cheat = np.array([[0.1, 50.0], [0.3, 50.0]]), np.array([[0.2, 10.0], [0.6, 10.0]])
    assert judge_pair(honest, cheat, tests=5) == pytest.approx((1.0, 0.2))  # no spread: 2 / 10 is all of the error
    assert judge_pair(honest * 0, cheat, tests=5) == (0.0, 1.0)


def test_workers_change_nothing() -> None:
    one, two = (
        [each.as_json() for each in audit(small(ACCOUNT), seeds=1, workers=workers, incentive_updates=40_000)]
        for workers in (1, 2)
    )
    assert one == two
    assert one[0]["timings"]["tried"] > 0


@fast_loops
def test_the_compiled_loop_finds_the_same() -> None:
    """Within the same effort; only the default effort differs."""
    found = [
        searched(small({"use": "fedstaleweight", "buffer": 2}), compiled=compiled, incentive_updates=80_000).as_json()
        for compiled in (False, True)
    ]
    assert found[0] == found[1]
    assert found[0]["timings"]["tried"] == 29


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=fast_loops)])
@pytest.mark.parametrize("budget", [40_000, 400_000])
def test_the_search_stays_within_its_effort(budget: int, compiled: bool) -> None:
    merged = 0

    class Counting(Bench):
        def map(self, ask: Any, trials: Any, progress: Any = None) -> Any:
            nonlocal merged
            answers = super().map(ask, trials, progress)
            merged += sum(each.cost for each in answers)
            return answers

    experiment = small({"use": "fedstaleweight", "buffer": 2})
    seen = [observe(experiment, Trial(0, 0, 2000, None))]
    with Counting(experiment) as bench:
        search = Search(Case(experiment, bench, 0, seen, compiled, budget), lambda *_: None)
        assert search.run().tried > 0
    assert budget / 4 < merged <= budget


def test_what_was_left_out_is_said() -> None:
    few = searched(small(ACCOUNT), incentive_updates=40_000)
    assert few.as_json()["timings"]["left_out"] == "schedules with the factors 4 and 16"
    none = searched(small(ACCOUNT), incentive_updates=1000)
    told = none.as_json()
    assert told["timings"]["tried"] == 0
    assert "--incentive-updates" in told["timings"]["left_out"]
    group = told["groups"]["all"]
    assert [group[key] for key in ("best_timing", "timing_gain", "timing_gain_error", "truthful")] == [None] * 4
    assert group["identities"] == {"rejoin_anew": None, "two": None}
    option, number = told["timings"]["left_out"].split("; ")[1].split()[:2]
    assert option == "--incentive-updates"
    assert searched(small(ACCOUNT), incentive_updates=int(number)).timings.tried > 0


def test_who_comes_and_goes_anyway_does_not_leave_by_a_plan() -> None:
    clients = [SIX, {**SIX, "group": "often away", "availability": "alternating(20, 20)"}]
    experiment = small(ACCOUNT, clients=clients, aggregations=200)
    assert [len(leaving(experiment.fleet(), client)) for client in (0, 6)] == [3, 0]
    assert "leaving and coming back" in searched(experiment, incentive_updates=100_000).timings.left_out


def test_every_schedule_of_four_parts_is_among_the_plans() -> None:
    written = [str(plan) for plan in plans()]
    assert len(set(written)) == len(written)
    assert sum(isinstance(plan, Schedule) for plan in plans()) == 4**4 - 4
    assert {"throttle(4)", "throttle(16)", "throttle(64)"} <= set(written)  # the constant schedules
    assert [str(timing(each)) for each in written] == written


def test_throttling_in_the_long_run_counts_too() -> None:
    nothing = Timings((Found(Truthful(), at_most=0.01),))
    gaining = Incentive((1.0, 8.0), np.array([0.1, 0.3]), np.array([0.0, 0.2]), best_throttle=8.0, throttle_gain=2.0)
    losing = Incentive((1.0, 8.0), np.array([0.1, 0.099]), np.array([0.0, 0.06]), best_throttle=1.0, throttle_gain=0.0)
    assert nothing.with_throttling([gaining], tried=True).found == (Found(Throttle(8.0), 2.0, 0.2, influence=0.3),)
    (found,) = nothing.with_throttling([losing], tried=True).found
    assert found.truthful and found.at_most == pytest.approx(0.05)
    assert nothing.with_throttling([gaining], tried=False) is nothing


def test_ctrl_c_in_the_middle_of_a_search_leaves_no_process_behind() -> None:
    def interrupt(part: str, done: int, total: int) -> None:
        if part == "timings":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit(small(ACCOUNT), seeds=1, workers=2, incentive_updates=40_000, progress=interrupt)
    assert not multiprocessing.active_children()


def test_of_a_group_that_is_never_heard_nothing_is_said() -> None:
    clients = [
        {"group": "fast", "count": 3, "delay": "uniform(1, 2)"},
        {"group": "late", "count": 1, "delay": "uniform(1, 2)", "join": 10_000},
    ]
    uses = [{"use": "fairshare", "buffer": 3}]
    experiment = parse({"name": "late", "aggregations": 100, "clients": clients, "strategies": uses})
    (result,) = audit(experiment, seeds=1, incentive_updates=400_000)
    fast, late = (group.as_json(tried=result.throttling.tried) for group in result.groups)
    told = ("best_throttle", "throttle_gain", "best_timing", "timing_gain", "truthful")
    assert [late[key] for key in told] == [None] * 5
    assert late["throttle_gain_at_most"] is late["timing_gain_at_most"] is None
    assert [fast[key] for key in told] == [1.0, 0.0, "truthful", 0.0, True]
    assert result.throttling.advice == ""  # more seeds would not help
    words = " ".join(answer([result]))
    assert "Under FairShare (buffer=3), no timing that was tried pays. The best of these gains less than" in words
    assert "Under FairShare (buffer=3), no update of late was merged, so nothing is known" in words
    assert (
        brief_verdict(result.groups[1].incentive, tried=True)
        == brief_words(result.groups[1].cheat)
        == "no update merged"
    )


def test_who_keeps_every_version_from_being_made_is_not_listened_to() -> None:
    """Five updates make a version: those of four fast clients, and one of a client that takes two days for it."""
    clients = [
        {"group": "fast", "count": 4, "delay": "uniform(1, 2)"},
        {"group": "rare", "count": 1, "delay": "200000"},
    ]
    uses = [{"use": "fairshare", "buffer": 5}]
    experiment = parse({"name": "stalled", "aggregations": 3, "clients": clients, "strategies": uses})
    away = Trial(0, 0, 3, None, plans=((0, timing("rejoin(6, 6)")),))
    assert influence(experiment, away) == (0.0, 0.0, 0.0, 0)
    assert influence(experiment, replace(away, plans=())).share > 0


def test_all_of_it_is_json() -> None:
    (found,) = audit(small(ACCOUNT, aggregations=100), seeds=1, incentive_updates=50_000)
    told = json.loads(json.dumps(found.as_json()))
    group = told["groups"]["all"]
    assert group["best_timing"] == "truthful" and group["timing_gain"] == 0 and group["truthful"] is True
    assert set(told["timings"]) == {"tried", "aggregations", "replications", "left_out"}
    assert set(group["identities"]) == {"rejoin_anew", "two"}
