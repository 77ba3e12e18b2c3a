"""The Gaussian mechanism in the server: short updates, the claimed sensitivity, and noise on every step."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlag import zoo
from fairlag.core.mechanism import Mechanism
from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import Arrived, CheckedUpdate, Dispatch, Report, Update
from fairlag.core.vector import Layout, Vector, length
from fairlag.errors import InputError, StrategyError
from fairlag.execute.nothing import Nothing
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.rules import weigh
from fairlag.rules.apply import adam, scale
from fairlag.runtime.virtual import run
from fairlag.zoo.private import largest_part, noisy
from tests.support.private import mechanism, private
from tests.support.scenes import Scene, vec

SIZE = 5
CLIP = 2.0


def arrives(scene: Scene, client: int, update: Update) -> None:
    """The update of the client's last task arrives."""
    scene.send(Arrived(scene.time + 1, scene.tasks[client].task, update))


class Extreme(Nothing):
    """Updates of any length and direction; those of one client are replaced."""

    def __init__(self, client: int = -1, factor: float = 0.0) -> None:
        super().__init__()
        self._client, self._factor = client, factor

    def result(self, task: Dispatch) -> Update:
        draws = np.random.default_rng((task.client, task.ordinal)).normal(0.0, 10.0, SIZE)
        return Update((draws * (self._factor if task.client == self._client else 1.0)).astype(np.float32))


def steps(strategy: Strategy, bound: float, groups: list[Group], executor: Extreme, seed: int) -> list[Vector]:
    """The steps of a run without noise."""
    fleet, versions = Fleet(groups, seed=seed), [np.zeros(SIZE, np.float32)]
    server = Server(
        strategy,
        clients=fleet.clients,
        parameters=versions[0],
        aggregations=20,
        seed=seed,
        privacy=mechanism(strategy, bound, clip=CLIP),
        on_version=lambda version, time, parameters: versions.append(parameters),
    )
    run(server, fleet, executor)
    return [after - before for before, after in pairwise(versions)]


@settings(max_examples=60, deadline=None)
@given(private(7), st.integers(0, 2**32), st.sampled_from([0.0, 1.0, -1.0, 1e4, -1e4]), st.integers(0, 6))
def test_one_client_changes_a_step_by_at_most_the_claimed_sensitivity(
    made: tuple[Strategy, float], seed: int, factor: float, client: int
) -> None:
    strategy, bound = made
    strategy = noisy_sgd(strategy)
    groups = [Group("fast", 5, parse("uniform(1, 2)")), Group("slow", 2, parse("uniform(4, 6)"))]
    without = steps(strategy, bound, groups, Extreme(client, 0.0), seed)
    others = steps(strategy, bound, groups, Extreme(client, factor), seed)
    claimed = CLIP * largest_part(strategy)
    assert len(without) == len(others)
    for one, other in zip(without, others, strict=True):
        assert length(other - one) <= claimed * (1 + 1e-5)


def noisy_sgd(strategy: Strategy) -> Strategy:
    """The strategy with a server rule that publishes the step itself, so that steps can be compared."""
    return replace(strategy, apply=scale(1.0))


def test_the_claimed_sensitivity_is_reached() -> None:
    """A bound that is never met would pass the test above, and cost accuracy."""
    strategy = noisy(zoo.buffered_fedavg(buffer=7), bound=1 / 7, clients=7)
    groups = [Group("all", 7, parse("constant(1)"))]
    without, others = (steps(strategy, 1 / 7, groups, Extreme(3, factor), 0) for factor in (0.0, 1e4))
    assert length(others[0] - without[0]) == pytest.approx(CLIP / 7, rel=1e-5)


@pytest.mark.parametrize("kind", [Update, CheckedUpdate])
def test_the_server_clips_what_a_client_did_not(kind: type[Update]) -> None:
    strategy = noisy(zoo.buffered_fedavg(buffer=2), bound=0.5, clients=2)
    scene = Scene(strategy, 2, parameters=vec(0, 0), privacy=mechanism(strategy, 0.5))
    arrives(scene, 0, kind(vec(300, 400)))
    arrives(scene, 1, kind(vec(0, 0)))
    assert scene.server.versions.newest.tolist() == pytest.approx([0.3, 0.4], rel=1e-5)


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=50), st.floats(1e-3, 1e3))
def test_a_clipped_update_is_never_too_long(values: list[float], clip: float) -> None:
    delta = vec(*values)
    found = Mechanism(clip).clipped(Update(delta)).delta
    assert length(found) <= clip and found.dtype == np.float32
    if length(delta) <= clip:
        assert found is delta
    elif np.abs(delta / length(delta)).min() > 1e-20:
        assert found / length(found) == pytest.approx(delta / length(delta), rel=1e-5, abs=1e-7)


def test_noise_is_added_between_the_reduction_and_the_server_rule() -> None:
    noise = np.array([0.25, -0.5])
    strategy = noisy(zoo.buffered_fedavg(buffer=2, lr=3.0), bound=0.5, clients=2)
    asked: list[tuple[int, int]] = []

    def draw(version: int, count: int) -> Any:
        asked.append((version, count))
        return noise * version

    guard = mechanism(strategy, 0.5, clip=4.0, noise=1.5, draw=draw)
    scene = Scene(strategy, 2, parameters=vec(0, 0), privacy=guard)
    for _ in range(2):
        for client in range(2):
            arrives(scene, client, Update(vec(1, client)))
    deviation = 1.5 * 4.0 * 0.5
    expected = 3.0 * (2 * np.array([1, 0.5]) + deviation * noise * 3)
    assert guard.deviation == deviation and asked == [(1, 2), (2, 2)]
    assert scene.server.versions.newest.tolist() == pytest.approx(expected.tolist())


def test_noise_is_added_if_too_few_clients_have_a_weight() -> None:
    """Whether there is noise must not tell who took part."""
    rule = weigh.capped(weigh.at_most(weigh.by_balance(), 0.5), 2.0)
    loop = zoo.buffered(rule, buffer=2, fresh=False)
    strategy = noisy(loop, bound=0.5, clients=2)
    guard = mechanism(strategy, 0.5, draw=lambda version, count: np.ones(count))
    scene = Scene(strategy, 2, parameters=vec(0, 0), privacy=guard)
    arrives(scene, 0, Update(vec(1, 1)))
    arrives(scene, 0, Update(vec(1, 1)))  # one client cannot be half of a version
    assert scene.server.view.version == 1
    assert scene.server.versions.newest.tolist() == [guard.deviation] * 2
    assert scene.server.view.weight_sums.tolist() == [0.0, 0.0]


def test_what_a_client_reports_is_not_believed() -> None:
    def by_reports(buffer: Any, view: Any) -> Any:
        return buffer.examples * (1.0 + buffer.losses)

    strategy = noisy(zoo.buffered(weigh.normalised(by_reports), buffer=2), bound=1.0, clients=2)
    scene = Scene(strategy, 2, parameters=vec(0), privacy=mechanism(strategy, 1.0))
    arrives(scene, 0, Update(vec(1), Report(1000, loss=9.0)))
    arrives(scene, 1, Update(vec(0)))
    assert scene.server.versions.newest.tolist() == [0.5]


def test_a_weight_that_the_noise_does_not_hide_stops_the_run() -> None:
    strategy = zoo.buffered_fedavg(buffer=2)  # without a bound
    guard = Mechanism(1.0, most=0.4, noise=1.0, draw=lambda version, count: np.zeros(count))
    scene = Scene(strategy, 2, parameters=vec(0), privacy=guard)
    arrives(scene, 0, Update(vec(1)))
    with pytest.raises(StrategyError, match=r"client 0 would have the weight 0.5, but the noise hides at most 0.4"):
        arrives(scene, 1, Update(vec(1)))
    assert scene.server.versions.newest.tolist() == [0.0]


def test_updates_of_one_client_with_opposite_weights_do_not_cancel() -> None:
    guard = Mechanism(clip=1.0, most=0.5, noise=1.0, draw=lambda version, count: np.zeros(count))
    assert guard.uses(np.array([7, 7]), np.array([0.25, -0.25])) == {7: 1.0}
    with pytest.raises(StrategyError, match=r"client 7 would have the weight 0.8"):
        guard.uses(np.array([7, 7]), np.array([0.4, -0.4]))


@pytest.mark.parametrize("longer", [2**-22, 2**-12, 1.0])
def test_sums_that_are_shortened_do_not_move_away_from_each_other(longer: float) -> None:
    one, other = vec(1, 0), vec(1 + longer, 0)
    shortened = [Mechanism(clip=1.0).sum_of_clipped(each, np.ones(1)) for each in (one, other)]
    assert length(shortened[0] - shortened[1]) <= length(one - other) + 2**-24


def test_statistics_are_refused() -> None:
    strategy = noisy(zoo.buffered_fedavg(buffer=2), bound=0.5, clients=2)
    layout = Layout(("weight", "running_mean"), ((1,), (1,)), 1)
    with pytest.raises(StrategyError, match="GroupNorm instead of BatchNorm"):
        Server(strategy, clients=2, parameters=vec(0, 0), layout=layout, privacy=mechanism(strategy, 0.5))


def test_noise_does_not_go_with_refused_aggregations() -> None:
    strategy = noisy(zoo.buffered_fedavg(buffer=2), bound=0.5, clients=2)
    with pytest.raises(InputError, match="would have used up budgets unseen"):
        Server(strategy, clients=2, parameters=vec(0, 0), max_growth=10.0, privacy=mechanism(strategy, 0.5))


def test_every_server_rule_is_post_processing() -> None:
    """A rule with a memory sees the noisy step, and nothing else."""
    strategy = replace(noisy(zoo.buffered_fedavg(buffer=1), bound=1.0, clients=1), apply=adam(0.1))
    guard = mechanism(strategy, 1.0, draw=lambda version, count: np.full(count, 0.5))
    noisy_run = Scene(strategy, 1, parameters=vec(0), privacy=guard)
    plain = Scene(replace(strategy, weigh=weigh.uniform), 1, parameters=vec(0))
    for update in (0.25, -0.5):
        arrives(noisy_run, 0, Update(vec(update)))
        arrives(plain, 0, Update(vec(update + guard.deviation * 0.5)))
    assert noisy_run.server.versions.newest.tolist() == plain.server.versions.newest.tolist()
