"""What clients say of themselves: which strategies believe it, and that a bound holds it in a simulation."""

from pathlib import Path

import numpy as np
import pytest

from fairlag.analyse.claims import believed
from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import Aggregation, Arrived, Dispatch, Joined, Report, Row, Update
from fairlag.core.vector import EMPTY
from fairlag.report.claims import claims_table
from fairlag.zoo import fairshare, fedavg, fedbuff, fednova, pisces

PAGE = Path(__file__).parent.parent / "docs" / "siege.md"


def test_a_lie_about_examples_buys_no_weight_beyond_what_the_server_knows() -> None:
    merged: list[Aggregation] = []

    def note(row: Row) -> None:
        if isinstance(row, Aggregation):
            merged.append(row)

    server = Server(fedavg(cohort=3), clients=3, most_examples=np.array([50, 100, 50]), record=note)
    for task in server.handle(Joined(0.0, [0, 1, 2])):
        assert isinstance(task, Dispatch)
        examples = 10**12 if task.client == 1 else 50
        server.handle(Arrived(1.0, task.task, Update(EMPTY, Report(examples=examples))))
    weights = zip((task.client for task in merged[0].tasks), merged[0].weights.tolist(), strict=True)
    assert dict(weights) == {0: 0.25, 1: 0.5, 2: 0.25}
    assert server.view.examples.tolist() == [50, 100, 50]


def test_who_reports_fewer_is_believed() -> None:
    server = Server(fedavg(cohort=1), clients=1, most_examples=np.array([50]))
    (task,) = server.handle(Joined(0.0, [0]))
    assert isinstance(task, Dispatch)
    server.handle(Arrived(1.0, task.task, Update(EMPTY, Report(examples=7))))
    assert server.view.examples.tolist() == [7]


@pytest.mark.parametrize(
    ("strategy", "claims"),
    [
        (fedbuff(buffer=3, concurrency=3), ()),
        (fedavg(cohort=3), ("examples",)),
        (fednova(cohort=3), ("examples", "effort")),
        (pisces(concurrency=3), ("examples", "loss")),
        (fairshare(buffer=3), ()),
        (fairshare(buffer=3, importance="examples"), ("examples",)),
    ],
    ids=["fedbuff", "fedavg", "fednova", "pisces", "fairshare", "fairshare by examples"],
)
def test_a_strategy_believes_what_its_formula_reads(strategy: Strategy, claims: tuple[str, ...]) -> None:
    assert believed(strategy) == claims


def test_the_page_says_which_algorithms_believe_what() -> None:
    """`claims_table()` prints the table of the page."""
    assert claims_table() in PAGE.read_text("utf-8")
