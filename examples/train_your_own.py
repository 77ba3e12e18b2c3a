"""Trains your own weighting: what does it do to the accuracy on the labels of slow clients?"""

import numpy as np
from numpy.typing import NDArray

import fairlag


def logarithm(buffer: fairlag.Buffer, view: fairlag.View) -> NDArray[np.float64]:
    """Rarely heard clients weigh more, but never many times more: weigh by the logarithm of the gap between updates."""
    rarity = np.log(1 + view.mean_gap(buffer.clients))
    weights: NDArray[np.float64] = rarity / rarity.sum()
    return weights


def main() -> None:
    experiment = fairlag.load("demo").checked(aggregations=200)
    for strategy in ("buffered_fedavg", logarithm):
        # One worker: for such a small model, starting more takes longer than they save.
        run = fairlag.simulate(experiment, strategy=strategy, workers=1)
        groups = ", ".join(f"{name} {run.accuracy('group', name):.1%}" for name in run.groups)
        print(f"{run.label}: accuracy {run.accuracy():.1%}, on the labels of each group: {groups}")
        print(run.influence().groupby("group")[["updates", "share", "influence", "fair"]].sum(), end="\n\n")


if __name__ == "__main__":
    main()
