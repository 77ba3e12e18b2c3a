"""Which versions of a run are evaluated, when they are skipped, and how their scores are stored."""

from math import inf
from typing import Any

import numpy as np
import pytest

from fairlag.core.state import pack, unpack
from fairlag.core.vector import Vector, published
from fairlag.lab.evaluations import Evaluations
from fairlag.lab.resources import Scoring
from fairlag.lab.store import Score
from fairlag.learn.task import ScoreSums
from tests.support.scores import scored

SCORING = Scoring(sample=10, whole=40, held={"slow": np.array([1])})
FIRST = published([0.5])


class Evaluator:
    """Is as quick as it is told to be; of two classes, one example of the second is wrong."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.ready = 0

    def evaluate(self, version: int, parameters: Vector, due: float, stop: int) -> None:
        self.asked.append((version, stop))

    def evaluated(self, patience: float = 0.0) -> list[tuple[int, ScoreSums]]:
        sums = ScoreSums(np.array([4, 6]), {"accuracy": np.array([4, 5]), "loss": np.array([2.0, 3.0])})
        done, self.ready = self.ready, 0
        return [(version, sums) for version, _ in self.asked[:done]]

    def close(self) -> None:
        pass


class Stored:
    def __init__(self) -> None:
        self.rows: list[tuple[int, float, list[Score]]] = []

    def evaluated(self, version: int, time: float, scores: list[Score]) -> None:
        self.rows.append((version, time, scores))


def evaluations(every: int = 2, scoring: Scoring = SCORING, **options: Any) -> tuple[Evaluations, Evaluator, Stored]:
    evaluator, store = Evaluator(), Stored()
    return Evaluations(store, evaluator, scoring, every=every, **options), evaluator, store  # type: ignore[arg-type]


def offered(made: Evaluations, *versions: int) -> None:
    for version in versions:
        made.offer(version, float(version), FIRST)


@pytest.mark.parametrize(("most", "expected"), [(inf, [0, 2, 4, 6]), (2, [0, 2])])
def test_one_version_in_every_few_unless_too_many_wait(most: float, expected: list[int]) -> None:
    made, evaluator, _ = evaluations(most_pending=most)
    offered(made, *range(8))
    assert evaluator.asked == [(version, 10) for version in expected]


@pytest.mark.parametrize(
    ("versions", "scoring", "again"),
    [
        ([0, 2], SCORING, True),
        ([0, 1, 2, 3], SCORING, True),
        ([0, 2], SCORING._replace(sample=40), False),
        ([0, 1, 2, 3], SCORING._replace(sample=40), True),
    ],
    ids=["on a sample", "not on the curve", "on all examples", "on all examples, but not on the curve"],
)
def test_the_last_version_is_evaluated_on_all_examples_once(versions: list[int], scoring: Scoring, again: bool) -> None:
    made, evaluator, _ = evaluations(scoring=scoring)
    offered(made, *versions)
    before = list(evaluator.asked)
    made.last(versions[-1], 9.0, FIRST)
    made.last(versions[-1], 9.0, FIRST)
    assert evaluator.asked == before + [(versions[-1], 40)] * again


def test_scores_are_stored_as_they_come() -> None:
    made, evaluator, store = evaluations()
    offered(made, 0, 2)
    made.collect()
    assert made.pending and not store.rows and not made.scores
    evaluator.ready = 1
    made.collect()
    ((version, time, scores),) = store.rows
    assert (version, time) == (0, 0.0) and made.pending
    assert scores == [
        scored("all", "", 10, 9, 0.5),
        scored("class", "0", 4, 4, 0.5),
        scored("class", "1", 6, 5, 0.5),
        scored("group", "slow", 6, 5, 0.5),
    ]
    assert made.scores == {"": 0.9, "slow": 5 / 6}


def test_what_was_not_scored_when_a_run_was_saved_is_asked_for_again() -> None:
    made, evaluator, _ = evaluations()
    offered(made, 0, 2, 4)
    evaluator.ready = 1
    made.collect()
    other, asked, _ = evaluations()
    other.restore(unpack(*pack(made.state())), version=5)
    assert asked.asked == [(2, 10), (4, 10)] and other.pending
    assert other.state()["scored"] == 4


def test_without_an_evaluator_nothing_is_kept() -> None:
    made = Evaluations(Stored(), None, None, every=1)  # type: ignore[arg-type]
    offered(made, 0, 1)
    made.last(1, 1.0, FIRST)
    made.collect()
    assert not made.pending and made.state() == {"pending": {}, "scored": 0}
