"""The noise: its distribution, that versions are independent, and that only a seed can repeat it."""

import numpy as np
import pytest
from scipy import stats

from fairlag.core.mechanism import Draw
from fairlag.privacy import noise

COUNT = 40_000


@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_seeded_noise_is_standard_normal(seed: int) -> None:
    drawn = noise.seeded(seed)(3, COUNT)
    assert abs(drawn.mean()) < 4 / np.sqrt(COUNT)
    assert abs(drawn.var() - 1) < 4 * np.sqrt(2 / COUNT)
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    assert abs(stats.kurtosis(drawn)) < 4 * np.sqrt(24 / COUNT)


def test_the_numbers_of_a_version_are_independent() -> None:
    drawn = noise.seeded(0)(1, COUNT)
    halves = drawn[: COUNT // 2], drawn[COUNT // 2 :]  # from the same pairs of words
    for one, other in (halves, (drawn[:-1], drawn[1:]), (halves[0] ** 2, halves[1] ** 2)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(len(one))


def test_versions_and_seeds_are_independent() -> None:
    rows = np.array([noise.seeded(seed)(version, 5_000) for seed in (0, 1) for version in range(1, 9)])
    correlations = np.corrcoef(rows)[np.triu_indices(len(rows), 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(5_000)


@pytest.mark.parametrize("draw", [noise.seeded(0), noise.system])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 650])
def test_there_are_as_many_numbers_as_asked_for(draw: Draw, count: int) -> None:
    drawn = draw(1, count)
    assert drawn.shape == (count,) and np.isfinite(drawn).all()


def test_only_seeded_noise_can_be_repeated() -> None:
    assert noise.seeded(5)(2, 100).tobytes() == noise.seeded(5)(2, 100).tobytes()
    assert noise.seeded(5)(2, 100).tobytes() != noise.seeded(6)(2, 100).tobytes()
    assert noise.system(2, 100).tobytes() != noise.system(2, 100).tobytes()


def test_system_noise_comes_from_strong_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its numbers are a function of `secrets` alone: with known bytes they are known, and standard normal."""
    fixed = np.random.default_rng(0).bytes(8 * COUNT)
    monkeypatch.setattr("secrets.token_bytes", lambda count: fixed[:count])
    drawn = noise.system(1, COUNT)
    assert drawn.tobytes() == noise.system(2, COUNT).tobytes()
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
