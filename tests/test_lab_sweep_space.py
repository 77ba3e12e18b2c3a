"""What a sweep tries: lists, ranges, for which strategies, and the sentence for everything else."""

from math import log
from typing import Any

import pytest

from fairlag.errors import InputError
from fairlag.lab.experiment import load
from fairlag.lab.sweep.space import Listed, Range, domain, options, spaces

DEMO = load("demo")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("0.1,0.3, 1", Listed((0.1, 0.3, 1))),
        ([0.1, 0.1, 1], Listed((0.1, 1))),
        ("5", Listed((5,))),
        ("none, true", Listed(("none", True))),
        ("cosine(0.1, 200), 0.1", Listed(("cosine(0.1, 200)", 0.1))),
        ("log(0.01, 0.3)", Range("log", 0.01, 0.3)),
        ("integers(2, 20)", Range("integers", 2, 20)),
        ("uniform(-1, 1)", Range("uniform", -1, 1)),
    ],
)
def test_values_are_read(given: Any, found: object) -> None:
    assert domain("key", given) == found


def test_a_key_is_meant_for_the_strategies_that_have_it() -> None:
    over = {"strategies.fairshare.buffer": [3], "buffer": [5, 10], "cap": [2.0], "local.lr": "log(0.01, 0.1)"}
    fedavg, stale, fair = spaces(DEMO, over)
    assert [list(each.domains) for each in (fedavg, stale, fair)] == [["buffer", "local.lr"]] * 2 + [
        ["buffer", "cap", "local.lr"]
    ]
    assert fair.domains["buffer"] == Listed((3,)) and stale.domains["buffer"] == Listed((5, 10))


def test_a_setting_becomes_a_strategy() -> None:
    (space, *_) = spaces(DEMO, {"lr": [0.5], "local.lr": [0.2], "local.momentum": [0.9]})
    use = space.tuned({"lr": 0.5, "local.lr": 0.2, "local.momentum": 0.9}, "mine")
    assert (use.label, use.parameters, use.local) == (
        "mine",
        {"buffer": 5, "lr": 0.5},
        {"lr": 0.2, "momentum": 0.9},
    )


def test_a_grid_has_every_combination_once() -> None:
    (space, *_) = spaces(DEMO, {"lr": [0.1, 1.0], "buffer": [2, 3, 4]})
    grid = space.grid()
    assert len(grid) == space.cells == 6
    assert grid[:2] == [{"lr": 0.1, "buffer": 2}, {"lr": 0.1, "buffer": 3}]
    drawn = space.drawn(4, seed=0)
    assert len(drawn) == 4 and all(drawn.count(each) == 1 and each in grid for each in drawn)
    assert sorted(space.drawn(9, seed=0), key=str) == sorted(grid, key=str)


def test_draws_are_those_of_their_distribution() -> None:
    """Against the closed forms: the mean logarithm of a log-uniform number, and equal shares of whole ones."""
    (space, *_) = spaces(DEMO, {"local.lr": "log(0.001, 1)", "buffer": "integers(2, 5)", "lr": "uniform(1, 3)"})
    drawn = space.drawn(2000, seed=0)
    logs = [log(float(str(each["local.lr"]))) for each in drawn]
    assert sum(logs) / 2000 == pytest.approx(log(0.001) / 2, abs=0.15)
    assert sum(float(str(each["lr"])) for each in drawn) / 2000 == pytest.approx(2, abs=0.05)
    shares = [sum(each["buffer"] == size for each in drawn) / 2000 for size in (2, 3, 4, 5)]
    assert shares == pytest.approx([0.25] * 4, abs=0.04)


def test_strategies_try_the_same_draws() -> None:
    one, other, _ = spaces(DEMO, {"local.lr": "log(0.001, 1)", "strategies.fedstaleweight.lr": "log(0.1, 1)"})
    assert [each["local.lr"] for each in one.drawn(5, 0)] == [each["local.lr"] for each in other.drawn(5, 0)]
    assert one.drawn(5, 0) != one.drawn(5, 1)


@pytest.mark.parametrize(
    ("over", "sentence"),
    [
        (["lr"], "--over is 'lr', it must be a key and its values"),
        (["lr=1", "lr=2"], "--over has 'lr' twice"),
        (["lr="], "there are no values for 'lr'"),
        (["lrr=1,2"], "no strategy has a parameter 'lrr' to sweep: did you mean 'lr'?"),
        (["buffr=1,2"], "no strategy has a parameter 'buffr' to sweep: did you mean 'buffer'?"),
        (["local.lrr=1,2"], "there is no 'local.lrr' to sweep: did you mean 'local.lr'?"),
        (
            ["strategies.fairshar.lr=1"],
            "'strategies.fairshar.lr' cannot be swept: there is no 'fairshar'; did you mean 'fairshare'?",
        ),
        (["strategies.fairshare"], "--over is 'strategies.fairshare', it must be a key and its values"),
        (["strategies.fairshare=1"], "cannot be swept: write strategies.NAME.KEY=VALUES"),
        (["strategies.fairshare.lrr=1"], "FairShare does not have a parameter 'lrr' to sweep: did you mean 'lr'?"),
        (
            ["lr=loguniform(0.1,1)"],
            "it must be a valid number; a range is log(low, high), uniform(low, high) or integers(low, high)",
        ),
        (
            ["data.holdout=0.1,0.2"],
            "'data.holdout' cannot be swept: give a parameter of a strategy, or a key of [local]",
        ),
        (["seed=1,2"], "no strategy has a parameter 'seed' to sweep"),
        (["lr=log(-1,1)"], "the range 'log(-1,1)' of 'lr' has no logarithm: both numbers must be above 0"),
        (["lr=log(1,0.1)"], "the range 'log(1,0.1)' of 'lr' is empty: the first number must be below the second"),
        (["lr=log(1)"], "the range 'log(1)' of 'lr' must have a lowest and a highest number"),
        (["buffer=integers(1.5,3)"], "the range 'integers(1.5,3)' of 'buffer' must be between whole numbers"),
        (["buffer=2,x"], "Buffered FedAvg does not take buffer = 'x'"),
        (["buffer=2,0"], "Buffered FedAvg does not take buffer = 0: the buffer is 0"),
        (["local.lr=0.1,fast"], "Buffered FedAvg does not take local.lr = 'fast'"),
        ([], "there is nothing to try: give --over KEY=VALUES"),
    ],
)
def test_what_cannot_be_tried_is_one_sentence(over: list[str], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        spaces(DEMO, options(over))
    assert sentence in str(error.value)
