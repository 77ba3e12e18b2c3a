"""Which cap and limit a fleet needs, against the closed form and against what strategies have."""

from math import inf

import numpy as np
import pytest

from fairlag import zoo
from fairlag.analyse.bounds import bounds
from fairlag.core.strategy import Strategy
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from tests.support.command import Call

RARE = Fleet([Group("fast", 5, parse("0.54")), Group("slow", 7, parse("12.7"))], seed=0)


def of(strategy: Strategy, slow: float = 1.0) -> tuple[float, float, float, float]:
    """At the rates of the fleet; slow clients are entitled to that many times as much as fast ones."""
    sent = np.round(1e6 / RARE.mean_durations).astype(np.int64)
    found = bounds(strategy, RARE, sent, np.repeat([1.0, slow], [5, 7]), buffer=2)
    assert found is not None
    return found.cap, found.cap_needed, found.limit, found.limit_needed


def test_rare_clients_need_a_high_cap_and_a_high_limit() -> None:
    rare = 1 / 12.7
    share = rare / (7 * rare + 5 / 0.54)
    together = 7 / 12 / (1 - (1 - 7 * share) ** 2)
    assert of(zoo.fairshare(buffer=2)) == pytest.approx((2.0, together, 5.0, 1 / (12 * 2 * share)), rel=1e-4)
    assert of(zoo.fairshare(buffer=2, cap=None, limit=None))[::2] == (inf, inf)


def test_what_clients_are_entitled_to_counts() -> None:
    plain, less = (of(zoo.fairshare(buffer=2), slow) for slow in (1.0, 0.01))
    assert less[1] == pytest.approx(1.0) and less[1] < plain[1]
    sent, rarely = np.repeat([100, 10], [5, 7]), np.repeat([1.0, 0.1], [5, 7])
    present, known = (bounds(zoo.fairshare(buffer=2), RARE, sent, each, 2) for each in (rarely, np.ones(12)))
    assert present is not None and known is not None
    assert present.limit_needed == pytest.approx(1 / 2)  # as rarely there as heard
    assert known.limit_needed == pytest.approx(1 / 12 / 2 * 570 / 10)
    assert bounds(zoo.fairshare(), RARE, sent, np.zeros(12), 2) is None


def test_weights_without_a_cap_have_no_bounds() -> None:
    assert bounds(zoo.fedstaleweight(), RARE, np.ones(12, np.int64), np.ones(12), 5) is None


def test_an_audit_prints_the_cap_that_the_fleet_needs_and_who_is_below_it(call: Call) -> None:
    short = ("--aggregations", "400", "--seeds", "1", "--incentive-updates", "1")
    plain = call("audit", "demo", "--strategy", "fairshare", *short)
    assert "cap needed 1.1" in plain.out and "too low" not in plain.out
    low = call("audit", "demo", "--strategy", "fairshare(cap=1.05)", *short)
    assert "FairShare (cap=1.05): its cap of 1.05 is too low for this fleet" in " ".join(low.out.split())
