"""Bills of privacy: fleets whose answer is known, a plain twin of the sums, and what the command says."""

import json
import sys
from collections import defaultdict
from io import StringIO
from math import inf, isnan
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from fairlag.analyse.bill import Bill, Terms, Unbilled, bills, terms
from fairlag.analyse.trial import Trial, observe
from fairlag.core.server import Server
from fairlag.core.types import Aggregation, Row
from fairlag.errors import InputError
from fairlag.lab.experiment import Experiment, load, parse
from fairlag.privacy.accounting import epsilon
from fairlag.report.bill import bill_table
from fairlag.runtime import virtual
from tests.support.command import Call

ROUNDS = {"use": "fedavg", "cohort": 4, "importance": "uniform"}


def fleet(*uses: dict[str, Any], aggregations: int = 50, **more: Any) -> Experiment:
    return parse(
        {
            "name": "fleet",
            "aggregations": aggregations,
            "clients": [
                {"group": "fast", "count": 3, "delay": "uniform(1, 2)"},
                {"group": "slow", "count": 1, "delay": "uniform(8, 12)"},
            ],
            "strategies": list(uses),
            **more,
        }
    )


def bill_of(experiment: Experiment, wanted: Terms, bound: float = 1.0, seeds: int = 1) -> Bill:
    (found,) = bills(experiment, wanted, bound=bound, seeds=seeds)
    assert isinstance(found, Bill)
    return found


@pytest.mark.parametrize("bound", [0.25, 0.5, 1.0])
def test_in_rounds_of_everybody_all_pay_the_closed_form(bound: float) -> None:
    found = bill_of(fleet(ROUNDS), Terms(delta=1e-5, noise=2.0), bound)
    paid = epsilon(50 * 0.25**2 / (2 * (2.0 * bound) ** 2), 1e-5)
    assert [each for group in found.groups for each in (group.epsilon, group.largest)] == pytest.approx([paid] * 4)
    assert (found.bound, found.needed) == (bound, None) and found.ratio == pytest.approx(1.0)
    assert [group.influence for group in found.groups] == pytest.approx([0.75, 0.25])
    assert found.step_noise == 2.0 * bound


def test_the_noise_that_is_needed_gives_the_wanted_epsilon() -> None:
    experiment = fleet({"use": "buffered_fedavg", "buffer": 2})
    found = bill_of(experiment, Terms(delta=1e-5, epsilon=3.0), seeds=3)
    assert found.needed == found.noise
    assert max(group.largest for group in found.groups) <= 3.0 + 1e-9
    at_one = bill_of(experiment, Terms(delta=1e-5, noise=1.0, epsilon=3.0), seeds=3)
    assert at_one.needed == pytest.approx(found.noise) and at_one.noise == 1.0
    again = bill_of(experiment, Terms(delta=1e-5, noise=found.noise), seeds=3)
    assert [group.epsilon for group in again.groups] == pytest.approx([group.epsilon for group in found.groups])


def test_a_budget_lasts_as_many_versions_as_pay_it() -> None:
    found = bill_of(fleet(ROUNDS), Terms(delta=1e-5, noise=2.0, epsilon=4.0))
    lasts = found.groups[0].lasts
    assert lasts is not None
    later = bill_of(fleet(ROUNDS, aggregations=round(lasts)), Terms(delta=1e-5, noise=2.0))
    assert later.groups[0].epsilon == pytest.approx(4.0, rel=0.01)


def test_the_fast_pay_most_if_updates_weigh_the_same_and_the_slow_if_clients_do() -> None:
    paper = load("paper-fashion-mnist").checked(aggregations=800)
    paper = paper.only(["buffered_fedavg", "fairshare(most=1.0)"])
    even, fair = bills(paper, Terms(delta=1e-5, noise=3.0), bound=1.0)
    assert isinstance(even, Bill) and isinstance(fair, Bill)
    assert even.groups[0].epsilon > 2 * even.groups[1].epsilon
    assert fair.groups[1].epsilon > 2 * fair.groups[0].epsilon
    assert fair.groups[1].influence == pytest.approx(1 / 3, abs=0.02)


def test_what_a_group_pays_that_was_not_heard_yet_is_not_known() -> None:
    experiment, wanted = fleet({"use": "buffered_fedavg", "buffer": 2}, aggregations=2), Terms(1e-5, 1.0, 2.0)
    found = bill_of(experiment, wanted)
    slow = found.groups[1]
    assert all(map(isnan, (slow.epsilon, slow.largest, slow.lasts or 0.0))) and found.ratio == inf
    told = found.as_json()
    assert told["ratio"] is None and told["groups"]["slow"]["versions_until_spent"] is None
    json.dumps(told, allow_nan=False)
    page = Console(width=80, file=StringIO())
    page.print(bill_table(experiment, wanted, [found], 1))
    shown = page.file.getvalue()  # type: ignore[attr-defined]
    assert ["slow", "1", "0.000", "–", "–", "–"] in [line.split() for line in shown.splitlines()]
    assert "–: no update of the group was merged" in shown and "unequal ∞: no update of some client" in shown


@pytest.mark.parametrize("compiled", [False, True])
def test_squares_are_of_what_a_client_weighs_in_a_version(compiled: bool) -> None:
    experiment = fleet({"use": "buffered_fedavg", "buffer": 5, "fresh": False}, aggregations=2_000)
    sums: dict[int, float] = defaultdict(float)

    def add(row: Row) -> None:
        if isinstance(row, Aggregation):
            mine: dict[int, float] = defaultdict(float)
            for task, weight in zip(row.tasks, row.weights, strict=True):
                mine[task.client] += weight
            for client, weight in mine.items():
                sums[client] += weight**2

    (use,) = experiment.strategies
    server = Server(experiment.strategy(use), clients=4, seed=3, aggregations=2_000, record=add)
    virtual.run(server, experiment.fleet(3))
    seen = observe(experiment, Trial(0, 3, 2_000, None, squares=True, compiled=compiled))
    assert seen.squares == pytest.approx(np.array([sums[client] for client in range(4)]))
    assert seen.squares[0] > 1.5 * seen.updates[0] / 25  # fast clients are often in a buffer more than once
    assert not observe(experiment, Trial(0, 3, 20, None, compiled=compiled)).squares.any()


def test_the_table_of_the_file_is_used_and_a_budget_is_the_wanted_epsilon() -> None:
    table = {"clip": 0.1, "noise": 2.0, "delta": 1e-6, "budget": 0.5, "bound": 0.5}
    experiment = fleet(ROUNDS, privacy=table)
    assert terms(experiment) == Terms(1e-6, 2.0, 0.5)
    assert terms(experiment, noise=1.0, delta=1e-5, epsilon=4.0) == Terms(1e-5, 1.0, 4.0)
    (found,) = bills(experiment, terms(experiment))
    assert isinstance(found, Bill)
    assert found.bound == 0.5 and found.aggregations == 50 and found.groups[0].largest > 0.5


def test_strategies_without_any_promise_are_named_with_the_reason() -> None:
    found = bills(fleet({"use": "fedavg", "cohort": 4}, ROUNDS), Terms(1e-5, 1.0))
    assert isinstance(found[0], Unbilled) and isinstance(found[1], Bill)
    assert found[0].reason.startswith("FedAvg (cohort=4) does not fit [privacy]: by_examples reads what clients report")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"noise": 1.0}, "there is no delta: give --delta, such as 1e-5, or [privacy] in the file"),
        ({"delta": 1e-5}, "there is no noise: give --noise, or --epsilon to find it, or [privacy] in the file"),
        ({"delta": 3.0, "noise": 1.0}, "delta is 3.0, it must be above 0 and below 1"),
        ({"delta": 1e-5, "epsilon": 0.0}, "epsilon is 0.0, it must be a positive number"),
    ],
)
def test_terms_that_mean_nothing_get_one_sentence(given: dict[str, float], sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        terms(fleet(ROUNDS), **given)
    assert str(refused.value) == sentence


BRIEF = ("--seeds", "1", "--aggregations", "200", "--workers", "1", "--strategy", "buffered_fedavg")


def test_a_missing_library_is_named_before_anything_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(InputError, match="computing ε needs the extra `privacy`: pip"):
        terms(load("demo"), noise=1.0, delta=1e-5)


def test_the_command_shows_a_table(call: Call) -> None:
    words = ("--noise", "1", "--delta", "1e-5", "--bound", "0.5", "--epsilon", "8", "--strategy", "fedavg")
    done = call("audit", "demo", "--privacy", *BRIEF, *words)
    assert done.code == 0
    assert done.out.startswith("Who pays how much privacy in demo: ε at δ = 1e-05, 8 wanted\n")
    assert "Buffered FedAvg\n  noise 1, weight 0.5, unequal ×" in done.out
    assert "no ε: FedAvg does not fit [privacy]: by_examples reads" in done.out
    assert "needed: the smallest noise" in done.out and max(map(len, done.out.splitlines())) <= 80


def test_the_command_writes_json(call: Call, tmp_path: Any) -> None:
    file = tmp_path / "bill.json"
    done = call("audit", "demo", "--privacy", "--epsilon", "8", "--delta", "1e-5", "--json", "--out", str(file), *BRIEF)
    told = json.loads(done.out)
    assert json.loads(file.read_text()) == told
    (strategy,) = told["strategies"]
    assert (told["delta"], told["epsilon"], strategy["noise"]) == (1e-5, 8.0, strategy["noise_needed"])
    assert {*strategy["groups"]["fast"]} == {
        "clients",
        "influence",
        "epsilon",
        "epsilon_largest",
        "versions_until_spent",
    }


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--noise", "1"], "--noise 1 is only for --privacy: give --privacy as well"),
        (["--privacy", "--theory"], "--theory has no effect with --privacy, which shows the bill alone"),
        (["--privacy", "--noise", "-1", "--delta", "0.1"], "noise is -1.0"),
        (["--privacy", "--noise", "1", "--delta", "0.1", "--bound", "2"], "bound is 2.0"),
    ],
)
def test_options_that_mean_nothing_get_one_sentence(call: Call, words: list[str], sentence: str) -> None:
    done = call("audit", "demo", *words)
    assert done.code == 2 and sentence in done.err and done.err.count("\n") == 1
