"""Delays fitted to durations: known distributions are found again, also from durations that were cut off."""

import numpy as np
import pytest

from fairlag.analyse.fit.durations import check_way, distance, fit, lost_by_the_clock
from fairlag.analyse.fit.families import Sample, likeliest
from fairlag.core import seeds
from fairlag.core.types import Floats
from fairlag.errors import InputError
from fairlag.fleet.delay import Constant, Delay, Exponential, parse

MANY = 4000


def draws(delay: str | Delay, purpose: str = "durations", n: int = MANY) -> Floats:
    return parse(delay).quantile(seeds.uniforms(seeds.key(0, purpose), 0, n))


KNOWN = [
    "uniform(1, 2)",
    "uniform(8, 12)",
    "normal(10, 2)",
    "exponential(4)",
    "lognormal(30, 0.6)",
    "gamma(2, 3)",
    "pareto(5, 3)",
]


@pytest.mark.parametrize("text", KNOWN)
def test_a_family_is_found_again(text: str) -> None:
    found = fit(Sample(draws(text)))
    assert found.family == text.partition("(")[0]
    # The standard error of a mean of 4000 is below 2 % of it for each of these.
    assert found.delay.mean == pytest.approx(parse(text).mean, rel=0.05)
    assert found.distance < 0.03  # by chance it is above 1.63 / √4000 = 0.026 once in a hundred


@pytest.mark.parametrize("text", KNOWN[3:])
def test_what_was_cut_off_by_the_clock_does_not_shorten_the_fit(text: str) -> None:
    durations, until = draws(text), draws(Exponential(3 * parse(text).mean), "until")
    cut = until < durations
    true, seen = parse(text).mean, durations[~cut]
    found = fit(Sample(seen, until[cut]))
    assert lost_by_the_clock(seen, until[cut])
    assert seen.mean() < 0.96 * true  # long ones are missing
    assert found.delay.mean == pytest.approx(true, rel=0.06)


@pytest.mark.parametrize("text", KNOWN[2:])
def test_tasks_that_vanish_like_the_simulators_are_told_from_those(text: str) -> None:
    durations, coin = draws(text), draws("uniform(0, 1)", "coin")
    lost = coin < 0.1
    part = draws("uniform(0, 1)", "part")
    assert not lost_by_the_clock(durations[~lost], (durations * part)[lost])


def test_likelihood_with_cut_durations_by_hand() -> None:
    sample = Sample(np.array([1.0, 2.0, 6.0]), np.array([3.0, 8.0]))
    (mean,), _, likelihood = likeliest("exponential", sample)
    assert mean == pytest.approx(20 / 3, rel=1e-3)  # all time that was seen, by how many ended
    assert likelihood == pytest.approx(-3 * np.log(20 / 3) - 3, rel=1e-6)
    (minimum, shape), _, likelihood = likeliest("pareto", sample)
    logs = np.log([1, 2, 6, 3, 8])
    assert [minimum, shape] == pytest.approx([1, 3 / logs.sum()])
    assert likelihood == pytest.approx(3 * np.log(shape) - (shape + 1) * logs[:3].sum() - shape * logs[3:].sum())
    (low, high), _, likelihood = likeliest("uniform", Sample(np.array([1.0, 2.0, 3.0]), np.array([2.5])))
    assert low == 0 and high >= 4
    assert likelihood == pytest.approx(-3 * np.log(high) + np.log(1 - 2.5 / high))


def test_where_no_family_fits_the_durations_themselves_are_taken() -> None:
    text = "mixture(0.8, uniform(2, 3), 0.2, 20)"
    durations = draws(text)
    found = fit(Sample(durations))
    assert found.family == "empirical"
    assert len(str(found.delay).split(",")) == 100
    assert found.delay.mean == pytest.approx(durations.mean(), rel=1e-4)  # rounded to five digits, else exactly
    assert found.distance <= 0.011  # a hundredth by the list, and the grid that it is measured on


@pytest.mark.parametrize("text", ["lognormal(30, 0.6)", "gamma(2, 3)"])
def test_few_durations_of_a_family_seldom_fail_its_test(text: str) -> None:
    every = draws(text, n=12 * 30).reshape(30, 12)
    assert [fit(Sample(each)).family for each in every].count("empirical") <= 1  # 0.7 % of 300 or less were seen


def test_few_durations_are_listed_as_they_are() -> None:
    assert str(fit(Sample(np.array([3.0, 1.0, 2.5])), "empirical").delay) == "empirical(1, 2.5, 3)"


def test_survival_of_durations_that_were_cut_off() -> None:
    sample = Sample(np.array([1.0, 3.0, 4.0]), np.array([2.0, 9.0]))
    times, weights = sample.survival()
    assert times.tolist() == [1, 3, 4]
    # 1/5; of the three that are left at 3 one third of 4/5; all else to the last, as longer ones were never seen.
    assert weights == pytest.approx([1 / 5, 4 / 15, 8 / 15])
    assert sample.mean() == pytest.approx(1 / 5 + 12 / 15 + 32 / 15)
    assert [sample.quantile(part) for part in (0.1, 0.2, 0.3, 0.9)] == [1, 1, 3, 4]


def test_survival_of_durations_that_had_to_fit_into_a_window() -> None:
    sample = Sample(np.array([1.0, 3.0, 2.0]), window=np.array([2.5, 9.0, 4.0]))
    times, weights = sample.survival()
    assert times.tolist() == [1, 2, 3]
    # Two could have been seen to be 3 long, so that is one half; of what is left, one of three were not longer than 2.
    assert weights == pytest.approx([1 / 4, 1 / 4, 1 / 2])
    assert Sample(sample.exact, window=np.full(3, 3.0)).survival()[1] == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("text", ["exponential(4)", "lognormal(30, 0.6)", "gamma(2, 3)"])
def test_what_did_not_fit_into_its_window_does_not_shorten_the_fit(text: str) -> None:
    true = parse(text).mean
    durations, window = draws(text), true * draws("uniform(1.5, 3)", "window")
    seen = durations <= window
    assert durations[seen].mean() < 0.97 * true
    found = fit(Sample(durations[seen], window=window[seen]), text.partition("(")[0])
    assert found.delay.mean == pytest.approx(true, rel=0.06)  # a standard error of about 2 %


@pytest.mark.parametrize(
    ("durations", "text"),
    [([7.0], "constant(7)"), ([2.0, 2.0], "constant(2)"), ([3.0, 3.0 + 1e-12], "constant(3)")],
)
def test_equal_durations_are_constant(durations: list[float], text: str) -> None:
    found = fit(Sample(np.array(durations)))
    assert (str(found.delay), found.distance) == (text, 0)


def test_durations_of_zero_among_others_leave_families_that_have_them() -> None:
    durations = np.where(draws("uniform(0, 1)", "zero") < 0.01, 0.0, draws("exponential(4)"))
    assert fit(Sample(durations)).family == "exponential"
    assert fit(Sample(durations), "lognormal").family == "empirical"


def test_distance_is_that_of_both_sides_of_a_step() -> None:
    assert distance(Constant(2), Sample(np.array([2.0, 2.0, 2.0, 2.0]))) == 0
    assert distance(Constant(2), Sample(np.array([1.0, 1.0, 1.0, 3.0]))) == pytest.approx(0.75)
    assert distance(parse("uniform(0, 1)"), Sample(np.array([0.5]))) == pytest.approx(0.5)


@pytest.mark.parametrize("spread", [1e-8, 1e-6, 1e-3])
def test_durations_that_hardly_differ(spread: float) -> None:
    durations = 100 + spread * draws("normal(5, 1)", n=50)
    found = fit(Sample(durations))
    assert found.delay.mean == pytest.approx(durations.mean(), rel=1e-4)
    assert np.isfinite(found.delay.quantile(np.array([0.01, 0.5, 0.99]))).all()


def test_an_unknown_way() -> None:
    with pytest.raises(InputError, match=r"cannot fit by 'weibull': choose one of best, empirical, uniform, normal, "):
        check_way("weibull")
