"""The page docs/conformance.md: every algorithm has a limit there, every test that it names exists; and more limits."""

import re
from pathlib import Path
from typing import Any

import pytest

from fairlag import zoo
from fairlag.core.strategy import Strategy
from tests.support.scenes import Scene, one_late, vec

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "conformance.md"
ROW = re.compile(r"^\| `(?!use`)(?P<name>\w+)` \| (?P<limit>[^|]+) \| [^|]+ \| (?P<tests>[^|]+) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/\w+\.py)::(\w+)`")


def rows() -> list[re.Match[str]]:
    return list(ROW.finditer(PAGE.read_text("utf-8")))


@pytest.mark.parametrize("name", zoo.ALGORITHMS)
def test_every_algorithm_is_on_the_page_with_a_limit_and_its_test(name: str) -> None:
    own = [row for row in rows() if row["name"] == name]
    assert own, f"docs/conformance.md has no row of {name}"
    assert all(row["limit"].strip() and TEST.search(row["tests"]) for row in own)


def test_the_page_names_no_algorithm_and_no_test_that_does_not_exist() -> None:
    assert {row["name"] for row in rows()} <= set(zoo.ALGORITHMS)
    named = TEST.findall(PAGE.read_text("utf-8"))
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not (ROOT / file).is_file() or f"\ndef {test}(" not in (ROOT / file).read_text("utf-8")
    ]
    assert named and not missing


# Limits that have no other place


def test_exponential_with_gamma_1_is_buffered_fedavg_bit_for_bit() -> None:
    one, other = one_late(zoo.exponential(gamma=1.0, buffer=2)), one_late(zoo.buffered_fedavg(buffer=2))
    assert one.weights == other.weights
    assert one.server.versions.newest.tobytes() == other.server.versions.newest.tobytes()


def rounds(strategy: Strategy, *, parameters: Any, examples: tuple[int, ...] = (1, 1, 1, 1)) -> Scene:
    """Four clients of the same speed, whose updates arrive at the same moment; three times."""
    scene = Scene(strategy, 4, parameters=parameters, examples=examples)
    for number in range(1, 4):
        for client in range(4):
            x = ((7 * number + 3 * client) % 11 - 5) / 10
            scene.arrive(client, x, -x / 3, examples=examples[client], at=float(number))
    assert scene.server.view.version == 3
    return scene


@pytest.mark.parametrize("name", ["buffered_fedavg", "rate_tracking", "fedstaleweight", "exponential"])
def test_clients_of_equal_speed_in_one_buffer_are_a_round_of_fedavg_bit_for_bit(name: str) -> None:
    one = rounds(zoo.ALGORITHMS[name].make(buffer=4), parameters=vec(1, -2))
    other = rounds(zoo.fedavg(cohort=4), parameters=vec(1, -2))
    assert one.weights == other.weights
    assert one.server.versions.newest.tobytes() == other.server.versions.newest.tobytes()


BOUND = 1e6


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedadagrad", {"lr": 2 * BOUND}),
        ("fedadam", {"lr": 2 * BOUND, "beta1": 0.0, "beta2": 1 - 1e-9}),
        ("fedyogi", {"lr": 2 * BOUND, "beta1": 0.0}),
    ],
)
def test_an_adaptive_server_with_a_large_eps_is_fedavg(name: str, options: dict[str, float]) -> None:
    """ε outweighs the size of steps: lr / (√ε² + ε) is 1."""
    examples = (3, 1, 7, 2)
    one = rounds(zoo.ALGORITHMS[name].make(cohort=4, eps=BOUND, **options), parameters=vec(1, -2), examples=examples)
    other = rounds(zoo.fedavg(cohort=4), parameters=vec(1, -2), examples=examples)
    assert one.parameters == pytest.approx(other.parameters, rel=1e-5)


def test_asyncfeded_with_one_client_is_plain_asynchronous_sgd_bit_for_bit() -> None:
    scenes = [Scene(each, 1, parameters=vec(1, -2)) for each in (zoo.asyncfeded(), zoo.buffered_fedavg(buffer=1))]
    for x in (0.3, -0.7, 1e-3, 5.0):
        for scene in scenes:
            scene.arrive(0, x, -x / 3)
    assert scenes[0].server.versions.newest.tobytes() == scenes[1].server.versions.newest.tobytes()


def test_async_fedavg_of_clients_of_equal_speed_is_plain_asynchronous_sgd() -> None:
    scene = Scene(zoo.async_fedavg(importance="uniform"), 4, parameters=vec(0))
    for number in range(1, 4):
        for client in range(4):
            scene.arrive(client, 1, at=2.0 * number)
    assert scene.weights[3:] == [[1.0]] * 9  # once all have been heard of
