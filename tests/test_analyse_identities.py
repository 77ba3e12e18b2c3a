"""What several identities gain: against closed forms, and never by losing count of the names."""

from typing import Any

import pytest

from fairlag.analyse.audit import audit
from fairlag.analyse.identities import Identities, anew, two
from fairlag.analyse.trial import Trial, influence
from fairlag.lab.experiment import Experiment, parse

EQUAL = [{"group": "all", "count": 6, "delay": "uniform(0.9, 1.1)"}]
ACCOUNT = {"use": "fairshare", "estimator": "account", "cap": 2.0, "buffer": 2}


def small(use: dict[str, Any], **tables: Any) -> Experiment:
    return parse({"name": "small", "aggregations": 500, "clients": EQUAL, "strategies": [use], **tables})


def identities(use: dict[str, Any], **tables: Any) -> Identities:
    (found,) = audit(small(use, **tables), seeds=1, incentive_updates=100_000)
    return found.groups[0].identities


def test_two_of_n_plus_one_hold_two_shares() -> None:
    found = identities({"use": "buffered_fedavg", "buffer": 2})
    assert found.two == pytest.approx(2 * 6 / 7 - 1, abs=0.02)


def test_two_names_hold_two_shares_of_an_account_too() -> None:
    assert identities(ACCOUNT).two == pytest.approx(2 * 6 / 7 - 1, abs=0.02)


def test_a_new_name_counts_like_any_other_in_fedavg() -> None:
    """Equal weights forget nothing and remember nothing; without `fresh` nobody waits for a version either."""
    found = identities({"use": "buffered_fedavg", "buffer": 2, "fresh": False})
    assert found.rejoin_anew == pytest.approx(0.0, abs=0.02)


def test_under_an_account_a_fast_client_gains_the_influence_of_fedavg_by_new_names() -> None:
    """A first update weighs 1/b: the fast client sends 10/15 of all updates, instead of a fair 1/6."""
    fast = {"group": "fast", "count": 1, "delay": "uniform(0.09, 0.11)"}
    clients = [fast, {"group": "all", "count": 5, "delay": "uniform(0.9, 1.1)"}]
    experiment = small({**ACCOUNT, "fresh": False}, clients=clients)
    trial = Trial(0, 0, 500, None)
    assert influence(experiment, trial).share == pytest.approx(1 / 6, abs=0.01)
    assert anew(experiment, trial, names=1000, stay=1) == pytest.approx(10 / 15, abs=0.02)


def test_there_are_names_enough_for_a_client_that_no_longer_waits() -> None:
    """With `fresh` the fast client waits for most versions, and a new name never: 10/15 of all updates, not 1/3."""
    fast = {"group": "fast", "count": 1, "delay": "uniform(0.09, 0.11)"}
    clients = [fast, {"group": "all", "count": 5, "delay": "uniform(0.9, 1.1)"}]
    (found,) = audit(small({**ACCOUNT, "buffer": 3}, clients=clients), seeds=1, incentive_updates=100_000)
    assert found.groups[0].share < 0.4
    anew = found.groups[0].identities.rejoin_anew
    assert anew is not None and anew == pytest.approx(6 * 10 / 15 - 1, rel=0.1)


def test_with_no_names_left_it_keeps_the_last() -> None:
    experiment = small({"use": "buffered_fedavg", "buffer": 2, "fresh": False})
    trial = Trial(0, 0, 500, None)
    few, many = (anew(experiment, trial, names=names, stay=1) for names in (1, 1000))
    assert few == pytest.approx(many, abs=0.02)
    assert few == pytest.approx(1 / 6, abs=0.02)


def test_both_names_of_the_right_group_are_counted() -> None:
    clients = [*EQUAL, {"group": "slow", "count": 2, "delay": "uniform(9, 11)"}]
    experiment = small({"use": "buffered_fedavg", "buffer": 2, "fresh": False}, clients=clients)
    slow = Trial(0, 0, 500, None, client=6)
    rates = [1 / 10, 6 + 3 / 10]
    assert two(experiment, slow) == pytest.approx(2 * rates[0] / rates[1], rel=0.1)
    assert anew(experiment, slow, names=100, stay=4) == pytest.approx(rates[0] / (6 + 2 / 10), rel=0.1)


def test_who_is_not_always_there_is_not_renamed() -> None:
    clients = [{**EQUAL[0], "availability": "alternating(20, 20)"}]
    found = identities({"use": "buffered_fedavg", "buffer": 2}, clients=clients)
    assert found.rejoin_anew is None and found.two is not None
