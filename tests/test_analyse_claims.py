"""What clients say of themselves: which strategies believe it, and that a bound holds it in a simulation."""

import numpy as np
import pytest

from fairlag.analyse.claims import CLAIMS, believed
from fairlag.core.server import Server
from fairlag.core.types import Arrived, Dispatch, Joined, Report, Update
from fairlag.core.vector import EMPTY
from fairlag.lab.strategies import build
from fairlag.zoo import ALGORITHMS, fedavg
from tests.support.experiments import small


def test_a_lie_about_examples_buys_no_weight_beyond_what_the_server_knows() -> None:
    server = Server(fedavg(cohort=3), clients=3, most_examples=np.array([50, 100, 50]))
    tasks = [command for command in server.handle(Joined(0.0, [0, 1, 2])) if isinstance(command, Dispatch)]
    weights = []
    server.record = lambda row: weights.append(getattr(row, "weights", None))
    for task in tasks:
        examples = 10**12 if task.client == 1 else 50
        server.handle(Arrived(1.0, task.task, Update(EMPTY, Report(examples=examples))))
    (found,) = [each for each in weights if each is not None]
    order = [task.client for task in tasks]
    assert [found.tolist()[order.index(client)] for client in range(3)] == [0.25, 0.5, 0.25]
    assert server.view.examples.tolist() == [50, 100, 50]


def test_who_reports_fewer_is_believed() -> None:
    server = Server(fedavg(cohort=1), clients=1, most_examples=np.array([50]))
    (task,) = [command for command in server.handle(Joined(0.0, [0])) if isinstance(command, Dispatch)]
    server.handle(Arrived(1.0, task.task, Update(EMPTY, Report(examples=7))))
    assert server.view.examples.tolist() == [7]


BELIEVERS = {
    **dict.fromkeys(("fedavg", "fedprox", "fedavgm", "fedadagrad", "fedadam", "fedyogi"), ("examples",)),
    **dict.fromkeys(("safa", "asofed", "async_fedavg", "fedfix"), ("examples",)),
    "fednova": ("examples", "effort"),
    "pisces": ("examples", "loss"),
}
"""The table of docs/siege.md."""


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_believes_what_the_documentation_says(name: str) -> None:
    use = small(name, 3)
    assert believed(build(use.pop("use"), use)) == BELIEVERS.get(name, ())
    assert set(BELIEVERS.get(name, ())) <= set(CLAIMS)
