"""The effective size of aggregations: exact numbers of aggregations written by hand."""

from pathlib import Path

import numpy as np
import pytest

from fairlag.analyse.effective import effective_sizes
from fairlag.core.types import Aggregation, Dispatch
from fairlag.lab.run import Run
from fairlag.lab.store import Store


def merged(folder: Path, *aggregations: dict[int, list[float]]) -> Run:
    """A run whose aggregations have these weights, per client one for each of its updates."""
    three, number = np.zeros(3, np.int64), 0
    with Store.create(folder, {}, experiment="", groups=["all"], group_of=three, examples=three) as store:
        for version, weights in enumerate(aggregations, 1):
            pairs = [(client, weight) for client, mine in weights.items() for weight in mine]
            tasks = tuple(Dispatch(number + at, client, 0, 0, 0.0) for at, (client, _) in enumerate(pairs))
            late, found = np.zeros(len(pairs), np.int64), np.array([weight for _, weight in pairs])
            store.record(Aggregation(version, version, tasks, [version] * len(pairs), late, found, False))
            number += len(pairs)
        store.commit({}, "", len(aggregations))
    return Run(folder)


def test_effective_sizes_of_aggregations(tmp_path: Path) -> None:
    equal, alone, uneven = {0: [0.5], 1: [0.5]}, {2: [0.7], 1: [0.0]}, {0: [0.2, 0.2], 1: [0.2], 2: [0.2]}
    sizes = effective_sizes(merged(tmp_path, equal, alone, uneven, {0: [0.0]}))
    assert sizes.version.tolist() == [1, 2, 3, 4] and sizes.clients.tolist() == [2, 2, 3, 1]
    assert sizes.size[:2].tolist() == [2.0, 1.0]
    # The two updates of client 0 count together: shares of 1/2, 1/4, 1/4.
    assert sizes.size[2] == pytest.approx(1 / (1 / 4 + 1 / 16 + 1 / 16))
    assert np.isnan(sizes.size[3])


def test_a_run_without_aggregations_has_no_sizes(tmp_path: Path) -> None:
    assert effective_sizes(merged(tmp_path)).size.tolist() == []
