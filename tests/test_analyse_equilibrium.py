"""Where fleets settle if updates cost something: against closed forms of contests, first exact, then simulated."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import root

from fairlag.analyse.audit import audit
from fairlag.analyse.equilibrium import Look, Response, Rest, best_response, considered, settle
from fairlag.analyse.settling import Equilibrium, GroupAtRest, Untried, equilibria
from fairlag.core.types import Floats
from fairlag.lab.experiment import Experiment, parse
from fairlag.report.answer import answer
from fairlag.report.page.settled import settled_sections
from fairlag.report.page.spec import Named
from fairlag.report.settled import remarks
from fairlag.runtime.compiled import available
from tests.support.command import Call
from tests.support.page import checked

fast_loops = pytest.mark.skipif(not available(), reason="needs the extra `fast`")


def contest(rates: list[float], sizes: list[int], costs: list[float], s: float) -> Callable[[Floats], list[Look]]:
    """A Tullock contest without chance: (1 − s)/n + s r/Σr − κ r."""
    full, count, n = np.array(rates), np.array(sizes), sum(sizes)

    def looks(state: Floats) -> list[Look]:
        now, found = full / 2**state, []
        for group, octaves in enumerate(map(considered, state)):
            rate = full[group] / 2**octaves
            total = now @ count - now[group] + rate
            found.append(Look(octaves, np.tile((1 - s) / n + s * rate / total - costs[group] * rate, (2, 1))))
        return found

    return looks


def solved(sizes: list[int], costs: list[float], s: float) -> Floats:
    """The rates at which ∂/∂r_i (s r_i/R − κ_i r_i) = 0 for everybody, by a root of these equations."""
    count, price = np.array(sizes), np.array(costs)

    def slopes(rates: Floats) -> Floats:
        total = rates @ count
        return np.asarray(s * (total - rates) / total**2 - price)

    n = count.sum()
    found = root(slopes, np.full(len(sizes), s * (n - 1) / n**2 / price.mean()))
    assert found.success
    return np.asarray(found.x)


@pytest.mark.parametrize(("n", "s", "slower"), [(2, 1.0, 3.0), (15, 1.0, 5.0), (15, 0.25, 2.0), (200, 0.5, 20.0)])
def test_equal_clients_settle_where_the_closed_form_says(n: int, s: float, slower: float) -> None:
    rate = s * (n - 1) / n**2 / 0.05
    rest = settle(contest([slower * rate], [n], [0.05], s), np.zeros(1))
    assert rest.settled
    assert 2 ** rest.octaves[0] == pytest.approx(slower, rel=0.02)


def test_full_speed_is_kept_while_it_pays() -> None:
    rest = settle(contest([1.0], [15], [0.01], 1.0), np.zeros(1))
    assert (rest.octaves.tolist(), rest.settled) == ([0.0], True)


def test_without_reward_everybody_goes_to_the_slowest_speed() -> None:
    rest = settle(contest([1.0, 2.0], [5, 5], [0.01, 0.01], 0.0), np.zeros(2))
    assert (rest.octaves.tolist(), rest.settled) == ([6.0, 6.0], True)


def test_unequal_costs_settle_where_nobody_gains_by_the_first_order_conditions() -> None:
    sizes, costs = [4, 6, 3], [0.05, 0.055, 0.052]
    rates = solved(sizes, costs, 0.8)
    rest = settle(contest([8.0, 4.0, 6.0], sizes, costs, 0.8), np.zeros(3))
    assert rest.settled
    assert np.array([8.0, 4.0, 6.0]) / 2**rest.octaves == pytest.approx(rates, rel=0.03)


def restless(state: Floats) -> list[Look]:
    """Everybody wants to be one octave slower than below 2, and one faster than above: there is no rest."""
    octaves = considered(state[0])
    wish = state[0] + (1.0 if state[0] < 2 else -1.0)
    return [Look(octaves, np.tile(-((octaves - wish) ** 2), (2, 1)))]


def test_a_game_without_rest_is_said_to_have_none() -> None:
    rest = settle(restless, np.zeros(1))
    assert not rest.settled
    assert rest.octaves[0] == pytest.approx(2, abs=0.02)
    assert next(remarks(at_rest(rest))).startswith("It does not settle: at ×")


def at_rest(rest: Rest) -> Equilibrium:
    group = GroupAtRest("all", 4, 0.1, 2 ** rest.octaves[0], 1.0, 1.0, rest.responses[0])
    return Equilibrium((group,), 1.0, 2.0, rest.settled)


def test_what_is_said_of_a_rest_was_seen_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if looking around ends before anybody is at rest."""
    monkeypatch.setattr("fairlag.analyse.equilibrium._MOST_LOOKS", 2)
    seen: list[float] = []

    def slower_is_better(state: Floats) -> list[Look]:
        seen.append(float(state[0]))
        octaves = considered(float(state[0]))
        return [Look(octaves, np.tile(octaves, (2, 1)))]

    rest = settle(slower_is_better, np.zeros(1))
    assert len(seen) == 2 and not rest.settled
    assert rest.octaves.tolist() == seen[-1:]


def test_chance_moves_nobody() -> None:
    chance = np.random.default_rng(0)
    octaves = considered(1.0)
    moved = [best_response(Look(octaves, chance.normal(size=(8, len(octaves)))), 1.0).octaves != 1 for _ in range(50)]
    assert np.mean(moved) < 0.1


def test_a_rest_that_chance_decided_is_said_to_be_unclear() -> None:
    octaves = considered(1.0)
    noise = np.random.default_rng(0).normal(size=(8, len(octaves))) * 1e-4
    rest = settle(lambda _: [Look(octaves, noise)], np.ones(1))
    assert rest.octaves.tolist() == [1.0]
    words = "all: no speed within reach pays clearly more or less, so it may settle elsewhere as well."
    assert list(remarks(at_rest(rest))) == [words]


def test_an_edge_in_the_payoffs_is_not_rounded_off_into_a_gain() -> None:
    octaves = considered(0.0)
    edge = np.minimum(-0.01 * octaves, 0.3 - 0.3 * octaves)
    assert best_response(Look(octaves, np.tile(edge, (2, 1))), 0.0).octaves < 0.2


def fleet(clients: list[dict[str, Any]], *strategies: dict[str, Any]) -> Experiment:
    same = {"buffer": 2, "fresh": False}
    return parse({"name": "x", "aggregations": 10, "clients": clients, "strategies": [s | same for s in strategies]})


def rewarded(s: float) -> dict[str, Any]:
    return {"use": "fairshare", "estimator": "account", "cap": 2.0, "reward": s}


def found(experiment: Experiment) -> list[Equilibrium]:
    rests = equilibria(experiment, budget=4_000_000)
    known = [each for each in rests if isinstance(each, Equilibrium)]
    assert len(known) == len(rests)
    return known


@pytest.mark.slow
@fast_loops
def test_simulated_equal_clients_agree_with_the_closed_form() -> None:
    n, cost = 5, 0.6
    clients = [{"group": "all", "count": n, "delay": "uniform(1, 2)", "cost": cost}]
    shares = (0.25, 0.5, 1.0)
    for s, rest in zip(
        (1.0, *shares), found(fleet(clients, {"use": "buffered_fedavg"}, *map(rewarded, shares))), strict=True
    ):
        rate = s * (n - 1) / n**2 / cost
        (group,) = rest.groups
        assert rest.settled
        assert group.rate == pytest.approx(rate, rel=0.06)
        assert rest.versions == pytest.approx(n * rate / 2, rel=0.06)
        assert rest.welfare == pytest.approx(1 - s * (n - 1) / n, abs=0.05)
        assert rest.jain == pytest.approx(1)


@pytest.mark.slow
@fast_loops
def test_simulated_unequal_clients_agree_with_the_first_order_conditions() -> None:
    clients = [
        {"group": "cheap", "count": 3, "delay": "uniform(1, 2)", "cost": 0.5},
        {"group": "dear", "count": 3, "delay": "uniform(2, 3)", "cost": 0.6},
    ]
    for s, rest in zip((1.0, 0.5), found(fleet(clients, {"use": "buffered_fedavg"}, rewarded(0.5))), strict=True):
        rates = solved([3, 3], [0.5, 0.6], s)
        assert [group.rate for group in rest.groups] == pytest.approx(rates.tolist(), rel=0.1)
        influence = 3 * ((1 - s) / 6 + s * rates / (3 * rates.sum()))
        assert [group.influence for group in rest.groups] == pytest.approx(influence.tolist(), abs=0.02)


@fast_loops
def test_without_reward_a_simulated_fleet_slows_down_to_the_end() -> None:
    clients = [{"group": "all", "count": 4, "delay": "uniform(1, 2)", "cost": 0.1}]
    (rest,) = found(fleet(clients, rewarded(0.0)))
    (group,) = rest.groups
    assert (group.slowest, round(rest.speed * 64, 1)) == (True, 1.0)
    assert list(remarks(rest)) == [
        "all: at the slowest speed that was tried (×64), because speed buys too little influence."
    ]


def test_what_cannot_be_computed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = [{"group": "all", "count": 4, "delay": "uniform(1, 2)", "cost": 0.1}]
    (late,) = equilibria(fleet([{**clients[0], "join": 5.0}], {"use": "buffered_fedavg"}))
    assert isinstance(late, Untried)
    assert late.reason.startswith("clients join late")
    monkeypatch.setitem(sys.modules, "numba", None)
    (long,) = equilibria(fleet([{**clients[0], "count": 400}], {"use": "buffered_fedavg"}))
    assert isinstance(long, Untried)
    assert str(long).startswith("it takes too many updates: --incentive-updates ")
    assert long.as_json() == {"settled": None, "reason": str(long)}


@fast_loops
def test_an_audit_with_a_cost_says_where_the_fleet_settles(call: Call, tmp_path: Path) -> None:
    short = ("--aggregations", "20", "--seeds", "1", "--incentive-updates", "3000000", "--workers", "1")
    words = ("audit", "demo", "--strategy", "buffered_fedavg", *short)
    without = json.loads(call(*words, "--json").out)["strategies"][0]
    assert "equilibrium" not in without
    files = ("--out", str(tmp_path / "audit.json"), "--report", str(tmp_path / "audit.html"))
    done = call(*words, "--cost", "fast=0.2", "--cost", "slow=0.1", *files)
    found = json.loads((tmp_path / "audit.json").read_text())
    (known,) = found["strategies"]
    rest = known.pop("equilibrium")
    assert known == without
    # Slow clients at full speed: what is left for fast ones is r = (R − r)/R² / κ.
    fast, slow = rest["groups"]["fast"], rest["groups"]["slow"]
    total = 10 * fast["updates_per_time"] + 5 * slow["updates_per_time"]
    assert (slow["throttle"], slow["cost"]) == (1.0, 0.1)
    assert (total - fast["updates_per_time"]) / total**2 == pytest.approx(0.2, rel=0.03)
    assert rest["settled"]
    assert rest["versions_per_time"] == pytest.approx(total / 5, rel=0.02)
    assert "Where the fleet settles if every client chooses the speed that pays it most" in done.out
    assert f"({rest['speed']:.0%} of full speed)" in done.out
    where = f"at {rest['speed']:.0%} of its full speed: fast by ×{fast['throttle']:.3g} slower"
    assert found["answer"][-1] == f"At these costs the fleet settles {where} under Buffered FedAvg."
    assert found["answer"][-1] in (tmp_path / "audit.html").read_text()


def resting(throttle: float, **more: Any) -> Equilibrium:
    group = GroupAtRest("all", 4, 0.1, throttle, 0.2, 1.0, Response(0.0, 0.0, 0.001, 0.1))
    return Equilibrium((group,), **{"versions": 1.0, "full_speed": 2.0, "settled": True} | more)


def test_the_answer_and_the_page_say_where_the_fleet_settles() -> None:
    experiment = fleet([{"group": "all", "count": 4, "delay": "uniform(1, 2)"}], {"use": "buffered_fedavg"})
    (plain,) = audit(experiment, seeds=1, incentive_updates=1)
    assert not settled_sections([(Named("FedAvg", 0), plain)])
    for rest, words in (
        (resting(2.0), "At these costs the fleet settles at 50% of its full speed: all by ×2 slower under "),
        (resting(1.0, versions=2.0), "At these costs the fleet settles at its full speed under "),
        (resting(2.0, settled=False), "At these costs the fleet does not settle under "),
        (Untried("it takes too many updates", "--x 5"), "Where the fleet settles under "),
    ):
        found = replace(plain, rest=rest)
        assert answer([found])[-1].startswith(words)
        (section,) = settled_sections([(Named("FedAvg", 0), found)])
        checked(section)
        rows = [list(row) for table in section.tables for row in table.rows]
        if isinstance(rest, Untried):
            assert not rows and section.remarks[0] == "FedAvg: not computed: it takes too many updates: --x 5 suffices."
        else:
            slower = f"×{rest.groups[0].throttle:g}"
            assert rows == [["FedAvg, all", "4", "0.1", slower, "0.2", "1.000", "0.2300"]]
            assert section.tables[0].head[3] == "slower"


@pytest.mark.parametrize(
    ("cost", "sentence"),
    [
        ("-1", "--cost has '-1', it must be a number of at least 0, such as 0.01, or fast=0.01,slow=0.02"),
        ("much", "--cost has 'much', it must be a number of at least 0"),
        ("nan", "--cost has 'nan', it must be a number of at least 0"),
        ("fast=inf", "--cost has 'fast=inf', it must be a number of at least 0"),
        ("fest=1", "--cost has 'fest=1', but there is no group 'fest': did you mean 'fast'?"),
        ("fast=1,,", "--cost has '', it must be a number of at least 0"),
        ("1,fast=2", "--cost has 'fast=2', but group 'fast' already has a cost: give it once"),
    ],
)
def test_bad_costs_are_refused(call: Call, tmp_path: Path, cost: str, sentence: str) -> None:
    for words in (("audit", "demo"), ("figure", "demo", "--kind", "rewards", "--out", str(tmp_path / "x.png"))):
        done = call(*words, "--cost", cost)
        assert (done.code, done.out) == (2, "")
        assert sentence in done.err
        assert len(done.err.splitlines()) == 1


def test_a_bad_cost_in_a_file_is_refused(call: Call) -> None:
    done = call("audit", "demo", "--set", "clients.fast.cost=-0.1")
    assert done.code == 2
    assert "clients[1].cost is -0.1" in done.err
