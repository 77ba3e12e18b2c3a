"""Your own weighting in ten lines, compared with published ones on the paper's fleet."""

import numpy as np
from numpy.typing import NDArray

import fairlag


def square_root(buffer: fairlag.Buffer, view: fairlag.View, *, power: float = 0.5) -> NDArray[np.float64]:
    """Half-way between FedAvg and equal influence: weigh by a power of how rarely a client is heard."""
    rarity = view.mean_gap(buffer.clients) ** power
    weights: NDArray[np.float64] = rarity / rarity.sum()
    return weights


def main() -> None:
    experiment = fairlag.load("demo").checked(
        aggregations=500,
        strategies=[{"use": "buffered_fedavg"}, {"use": "my_rules:square_root"}, {"use": "fairshare"}],
    )
    # incentive_updates=1 skips the trials of cheating, which take longest. `fairlag audit` makes them.
    for result in fairlag.audit(experiment, seeds=2, incentive_updates=1):
        slow = result.groups[1]
        print(
            f"{result.label:16} slow clients: influence {slow.influence:.3f} (fair: {slow.fair:.3f}), "
            f"{slow.deployment.updates_per_day:,.0f} updates per device and day"
        )


if __name__ == "__main__":
    main()
