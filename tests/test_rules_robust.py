"""Robust reductions and clipping: against numpy, scipy, twins written from the papers, by hand, and in their limits."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import trim_mean

from fairlag.core.buffer import Buffer
from fairlag.core.types import Dispatch, Floats, Report
from fairlag.core.vector import Matrix
from fairlag.errors import StrategyError
from fairlag.rules import edit, reduce, robust
from fairlag.rules.rule import traits
from fairlag.rules.weigh import example
from fairlag.zoo import buffered_fedavg, defended
from tests.support.played import outcome, played


def drawn(count: int, size: int = 50, seed: int = 0) -> Matrix:
    return np.random.default_rng(seed).normal(size=(count, size)).astype(np.float32)


def equal(count: int) -> Floats:
    return np.full(count, 1 / count)


@pytest.mark.parametrize("count", range(1, 12))
def test_with_equal_weights_the_median_is_numpys(count: int) -> None:
    updates = drawn(count)
    found = robust.median(equal(count), updates)
    assert found == pytest.approx(np.median(updates, axis=0) * np.float32(equal(count).sum()), rel=1e-6)


def plain_weighted_median(weights: list[float], values: list[float]) -> float:
    """The middle of the interval of points with at most half of the weight on either side."""
    total, fits = sum(weights), []
    for value in values:
        below = sum(weight for weight, each in zip(weights, values, strict=True) if each < value)
        above = sum(weight for weight, each in zip(weights, values, strict=True) if each > value)
        if below <= total / 2 and above <= total / 2:
            fits.append(value)
    return (min(fits) + max(fits)) / 2


def test_the_weighted_median_has_half_of_the_weight_on_either_side() -> None:
    weights, updates = np.array([1, 2, 4, 1, 8, 2]) / 18, drawn(6)
    wanted = [plain_weighted_median(weights.tolist(), column) for column in updates.T.tolist()]
    assert robust.median(weights, updates) == pytest.approx(wanted, rel=1e-6)


def test_two_halves_meet_in_the_middle_although_their_sums_are_rounded() -> None:
    weights = np.array([0.1, 0.2, 0.3])  # 0.1 + 0.2 is more than 0.3 in floating point
    assert robust.median(weights, np.array([[1], [2], [4]], np.float32)).tolist() == pytest.approx([3 * 0.6])


def test_the_median_of_nothing_is_no_step() -> None:
    assert robust.median(np.zeros(3), drawn(3)).tolist() == [0.0] * 50
    assert traits(robust.median).credit(np.zeros(3), drawn(3)).tolist() == [0.0] * 3  # type: ignore[misc]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.2, 0.34])
def test_the_trimmed_mean_is_scipys(share: float) -> None:
    updates = drawn(10)
    assert reduce.trimmed_mean(share)(equal(10), updates) == pytest.approx(
        trim_mean(updates, share), rel=1e-5, abs=1e-6
    )


@pytest.mark.parametrize(
    "rule", [robust.median, reduce.trimmed_mean(0.2), robust.krum(2)], ids=["median", "trimmed_mean", "krum"]
)
def test_credits_add_up_to_the_weights_and_an_outlier_gets_none(rule: reduce.Reduce) -> None:
    updates = drawn(8)
    updates[3] = 100.0
    credit = traits(rule).credit
    assert credit is not None
    found = credit(equal(8), updates)
    assert (found.sum(), found[3]) == (pytest.approx(1.0), 0.0)


def test_of_a_trimmed_mean_the_credit_is_the_share_of_coordinates_that_were_kept() -> None:
    updates = np.array([[1, 9], [2, 8], [3, 7], [4, 1]], np.float32)
    credit = traits(reduce.trimmed_mean(0.25)).credit
    assert credit is not None
    assert credit(equal(4), updates).tolist() == [0.0, 0.5, 0.5, 0.0]


def plain_krum(updates: Matrix, f: int) -> list[int]:
    """Blanchard et al.: the score is the sum over the n − f − 2 closest vectors; multi-Krum keeps n − f."""
    n = len(updates)
    scores = []
    for i in range(n):
        distances = sorted(float(((updates[i].astype(float) - updates[j]) ** 2).sum()) for j in range(n) if j != i)
        scores.append(sum(distances[: n - f - 2]))
    return sorted(sorted(range(n), key=scores.__getitem__)[: n - f])


@pytest.mark.parametrize(("count", "f"), [(5, 1), (7, 2), (9, 3), (11, 1)])
def test_krum_is_its_plain_twin(count: int, f: int) -> None:
    for seed in range(5):
        updates = drawn(count, seed=seed)
        updates[0] *= 8
        kept = plain_krum(updates, f)
        found = robust.krum(f)(equal(count), updates)
        assert found == pytest.approx(updates[kept].mean(axis=0), rel=1e-4, abs=1e-6)


def test_krum_weighs_those_that_it_keeps() -> None:
    updates = np.array([[1], [2], [3], [2], [900]], np.float32)
    weights = np.array([0.1, 0.1, 0.4, 0.2, 0.2])
    assert robust.krum(1)(weights, updates).tolist() == pytest.approx([(0.1 + 0.2 + 1.2 + 0.4) / 0.8])


def test_krum_without_attackers_is_the_weighted_sum_to_the_byte() -> None:
    weights, updates = np.random.default_rng(1).uniform(size=6), drawn(6)
    assert robust.krum(0)(weights, updates).tobytes() == reduce.weighted_sum(weights, updates).tobytes()


def test_most_pairs_of_attackers_never_move_the_median_out_of_the_honest_range() -> None:
    honest = drawn(5)
    for places in combinations(range(7), 2):
        updates = np.insert(honest, [place - rank for rank, place in enumerate(places)], 1e30, axis=0)
        found = robust.median(equal(7), updates)
        assert ((found >= honest.min(axis=0)) & (found <= honest.max(axis=0))).all()


# Clipping


def test_clipping_to_the_median_bounds_only_what_is_longer() -> None:
    _, view = example()
    updates = np.array([[3, 4], [0, 1], [0, 2], [0, 3]], np.float32)
    tasks = tuple(Dispatch(place, place, 0, 0, 0.0) for place in range(4))
    rule = robust.clip_to_median()
    assert isinstance(rule, edit.Remembering)
    editor = rule.start()
    buffer = Buffer(tasks, [0] * 4, [Report()] * 4)
    assert editor(updates, buffer, view) == pytest.approx(np.array([[1.2, 1.6], [0, 1], [0, 2], [0, 2]]))
    again = rule.start()
    again.restore(editor.state())
    alone = Buffer(tasks[:1], [0], [Report()])
    assert again(np.array([[0, 50]], np.float32), alone, view).tolist() == [[0.0, 2.0]]  # of 50, 1, 2 and 3


@pytest.mark.parametrize(
    "text", ["clip(inf)", "clip_to_median(inf)", "krum(0)", "centred_clip(inf)", "trimmed_mean(0)"]
)
def test_an_endless_bound_changes_nothing(text: str) -> None:
    plain = buffered_fedavg(buffer=4)
    bare, bound = played(plain), played(defended(plain, text))
    exact = text != "trimmed_mean(0)"  # a mean rounds differently from a sum of quarters
    assert bound.versions.newest == pytest.approx(bare.versions.newest, rel=0 if exact else 1e-5, abs=0)
    assert bound.view.weight_sums == pytest.approx(bare.view.weight_sums)


@pytest.mark.parametrize(
    "text", ["clip(0.5)", "clip_to_median", "median", "trimmed_mean", "centred_clip(0.5)", "basgd(3)", "kardam(2)"]
)
def test_a_server_that_was_saved_midway_ends_with_the_same_bytes(text: str) -> None:
    strategy = defended(buffered_fedavg(buffer=5), text)
    kept, whole = (played(strategy, factor=_loud, halved=halved) for halved in (True, False))
    assert outcome(kept) == outcome(whole)


def _loud(client: int) -> float:
    return -10.0 if client == 3 else 1.0


@pytest.mark.parametrize("text", ["clip_to_median", "median", "trimmed_mean", "krum(1)", "centred_clip(2)", "basgd(5)"])
def test_a_defended_model_goes_where_honest_clients_go(text: str) -> None:
    """Honest updates are around 1 in every coordinate, and one of seven clients sends −10."""
    plain = buffered_fedavg(buffer=5)
    assert played(plain, factor=_loud).versions.newest.max() < 0
    assert played(defended(plain, text), factor=_loud).versions.newest.min() > 10


# Centred clipping and buckets


class _Parts:
    """Just enough of a view: parameters and parts."""

    version = 0

    def __init__(self, clients: int, size: int) -> None:
        self.parts = np.zeros(clients)
        self._size = size

    def parameters(self, version: int) -> Matrix:
        return np.zeros(self._size, np.float32)


def test_centred_clipping_by_hand() -> None:
    """v = 0: (3, 4) is cut to (.6, .8), (0, 1) stays. Then (.3, .9) + ½ (−.3, 3.1)/‖·‖ + ½ (.7, .1)."""
    view = _Parts(2, 2)
    reducer = robust.centred_clip(1.0).start(view)  # type: ignore[arg-type]
    tasks = tuple(Dispatch(place, place, 0, 0, 0.0) for place in range(2))
    buffer = Buffer(tasks, [0, 0], [Report()] * 2)
    weights = np.array([0.5, 0.5])
    first = reducer.reduce(weights, np.array([[3, 4], [0, 1]], np.float32), buffer)
    assert first == pytest.approx([0.3, 0.9])
    parts = reducer.parts(weights, buffer)
    assert (parts.changes.tolist(), parts.unit) == (pytest.approx([0.1, 0.5]), 1.0)
    view.parts = np.array([0.1, 0.5])
    second = reducer.reduce(weights, np.array([[0, 4], [1, 1]], np.float32), buffer)
    size = math.hypot(0.3, 3.1)
    assert second == pytest.approx([0.3 - 0.15 / size + 0.35, 0.9 + 1.55 / size + 0.05])
    taken = np.array([0.5 / size, 0.5])
    left = np.array([0.1, 0.5]) * (1 - taken.sum())  # what is left of the old centre keeps its makers
    assert reducer.parts(weights, buffer).changes == pytest.approx(left + taken - [0.1, 0.5])


def test_one_bucket_merges_every_arrival_alone() -> None:
    bare, bucketed = played(buffered_fedavg(buffer=1)), played(defended(buffered_fedavg(buffer=4), "basgd(1)"))
    assert bucketed.versions.newest.tobytes() == bare.versions.newest.tobytes()
    assert bucketed.view.weight_sums == pytest.approx(bare.view.weight_sums)


def test_buckets_by_hand() -> None:
    """Clients 0 and 2 share a bucket: means 2, 8 and 900, of which the median is 8; all of it is client 1's."""
    view = _Parts(4, 1)
    reducer = robust.bucketed(3, robust.median).start(view)  # type: ignore[arg-type]
    tasks = tuple(Dispatch(place, client, 0, 0, 0.0) for place, client in enumerate([0, 1, 3, 2]))
    buffer = Buffer(tasks, [0] * 4, [Report()] * 4)
    updates = np.array([[1], [8], [3], [900]], np.float32)
    assert reducer.reduce(equal(4), updates, buffer).tolist() == [8.0]
    parts = reducer.parts(equal(4), buffer)
    assert dict(zip(parts.clients.tolist(), parts.changes.tolist(), strict=True)) == {1: 1.0}


def test_buckets_wait_until_none_is_empty() -> None:
    class Senders:
        def __init__(self, *senders: int) -> None:
            self.senders = list(senders)

    ready = robust.every_bucket(3).ready
    waits, fires = Senders(0, 3, 4, 0), Senders(0, 3, 4, 5)
    assert not ready(waits)  # type: ignore[arg-type]
    assert ready(fires)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: robust.krum(-1), "the number of updates that Krum leaves out is -1"),
        (lambda: robust.centred_clip(0.0), "the radius of centred clipping is 0.0, it must be positive"),
        (lambda: robust.clip_to_median(-1.0), "the factor on the median length is -1.0, it must be positive"),
        (lambda: robust.bucketed(0, robust.median), "the number of buckets is 0"),
    ],
)
def test_what_a_rule_cannot_be_made_with_is_refused(make: object, sentence: str) -> None:
    with pytest.raises(StrategyError, match=sentence):
        make()  # type: ignore[operator]
