"""The `[privacy]` table: what it refuses, each in one sentence, and what it makes of strategies."""

import tomllib
from typing import Any

import pytest

import fairlag
from fairlag.errors import ExperimentError, StrategyError
from fairlag.lab.experiment import Experiment, load, parse
from fairlag.lab.resources import Resources
from fairlag.lab.serialise import as_tables, toml, written
from fairlag.rules.rule import label_of
from fairlag.zoo.private import largest_part
from tests.support.experiments import three_on_digits

NOISE = {"clip": 1.0, "noise": 0.5, "delta": 1e-5}


def experiment(strategy: str | dict[str, Any] = "buffered_fedavg", **privacy: Any) -> Experiment:
    use = {"use": strategy} if isinstance(strategy, str) else strategy
    return parse(
        {
            "name": "private",
            "aggregations": 20,
            "clients": [{"group": "all", "count": 10, "delay": "uniform(1, 2)"}],
            "strategies": [use],
            "privacy": privacy,
        }
    )


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"secure": True}, "hides nothing if one client may be a whole version"),
        ({"masks": False}, "give secure = true as well"),
        ({"bound": 0.0}, "privacy.bound is 0.0: it must be greater than 0"),
        ({"bound": 1.5}, "privacy.bound is 1.5: it must be less than or equal to 1"),
        ({"noise": 1.0, "delta": 1e-5}, "give clip as well"),
        ({"noise": 1.0, "clip": 1.0}, "give delta"),
        ({"delta": 1e-5}, "give noise as well"),
        ({"budget": 3.0}, "give noise and delta"),
        ({"clip": -1.0}, "privacy.clip is -1.0"),
        ({"nosie": 1.0}, "unknown key 'privacy.nosie': did you mean 'noise'?"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(table: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        experiment(**table)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("strategy", "table", "sentence"),
    [
        (
            {"use": "fedbuff", "buffer": 4},
            {"bound": 0.2},
            "5 clients per version, but a version has at most 4",
        ),
        ("asyncfeded", {"bound": 1.0}, "toward_drift(3.0, gain=1.0, first=10)) in local reads single updates"),
        ("ca2fl", {"bound": 0.5}, "remembers single updates"),
        ("fedavg", NOISE, "by_examples reads what clients report"),
        ({"use": "fairshare", "most": 0.4, "importance": "examples"}, NOISE, "importance = 'examples' reads"),
        ("buffered_scaffold", NOISE, "SCAFFOLD, buffered does not fit [privacy]: its clients send a second vector"),
        ("fairshare", NOISE, "give `most`"),
        ("fedau", NOISE, "mean_rounds(longest=50) has no bound on the total weight"),
        ({"use": "fedbuff", "defence": "median"}, {"bound": 0.5}, "median in reduce reads single updates"),
    ],
)
def test_a_strategy_that_needs_what_is_hidden_is_refused(strategy: Any, table: dict[str, Any], sentence: str) -> None:
    with pytest.raises(StrategyError, match=r"does not fit \[privacy\]") as caught:
        experiment(strategy, **table)
    assert sentence in str(caught.value)


def test_a_strategy_that_cannot_be_masked_is_named() -> None:
    tables = three_on_digits("masked", slow="uniform(2, 3)", model="logistic", lr=0.1)
    uses = [{"use": "buffered_scaffold", "buffer": 3}]
    found = parse({**tables, "aggregations": 1, "strategies": uses, "privacy": {"secure": True, "bound": 0.5}})
    with pytest.raises(StrategyError) as caught:
        Resources(found).setting(0)
    assert str(caught.value).startswith("SCAFFOLD, buffered (buffer=3) does not fit [privacy]: its clients send")


@pytest.mark.parametrize(
    ("strategy", "bound", "most"),
    [
        ("buffered_fedavg", 0.2, 0.2),
        ("fedstaleweight", 0.5, 0.5),
        ("fedbuff", 0.3, 0.3),
        ({"use": "fairshare", "most": 0.4}, 0.5, 0.4),
        ({"use": "fairshare", "most": 1.5}, 0.5, 1.0),
        ("exponential", 1.0, 1.0),
    ],
)
def test_the_largest_weight_of_a_client_is_known(strategy: Any, bound: float, most: float) -> None:
    found = experiment(strategy, bound=bound, **NOISE)
    assert largest_part(found.strategy(found.strategies[0])) == pytest.approx(most)


def test_secure_aggregation_bounds_shares_and_takes_accounts_without_most() -> None:
    found = experiment("fairshare", secure=True, bound=0.5)
    assert label_of(found.strategy(found.strategies[0]).weigh).startswith("bounded(capped(by_balance(")


def test_without_the_table_nothing_is_different() -> None:
    demo = load("demo")
    assert "privacy" not in as_tables(demo)
    assert "privacy" not in written(demo)
    assert label_of(demo.strategy(demo.strategies[1]).weigh) == "normalised(mean_staleness(scale=5, window=None))"


def test_the_table_is_written_and_read_again() -> None:
    found = experiment("fedbuff", secure=True, bound=0.5, **NOISE, budget=4.0)
    assert fairlag.Experiment.model_validate(as_tables(found)).privacy == found.privacy
    assert parse(tomllib.loads(toml(found))) == found
