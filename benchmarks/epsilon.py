"""What privacy costs: the accuracy of the preset `private` if no client's ε may be above a target, per fleet size.

A fleet of a different size has its groups, buffer, bound and `most` in proportion, and the same number of versions. For
each strategy and target, the noise is the smallest with which no client pays more than the target; weights do not
depend on the noise, so one run without noise is enough to find it. Accuracies are means over seeds ± the standard
deviation, on all test examples and on the labels that only slow clients hold.

    python benchmarks/epsilon.py [--sizes 15 150] [--targets 2 8 32] [--seeds 5] [--data fashion_mnist]
"""

import argparse
from math import sqrt
from statistics import mean, stdev

from fairlag.lab.experiment import Experiment, load
from fairlag.lab.run import Run
from fairlag.lab.simulate import simulate
from fairlag.privacy.accounting import allowance


def sized(whole: Experiment, clients: int, data: str | None) -> Experiment:
    """The experiment with this many clients."""
    assert whole.privacy is not None and whole.data is not None
    part = clients / whole.population
    buffer = round(20 * part)
    bound = min(1.0, 0.25 / part)
    table = {"use": data} if data else whole.data.model_dump()
    return whole.checked(
        clients=[each.model_copy(update={"count": round(each.count * part)}) for each in whole.clients],
        strategies=[
            {"use": use.use, "label": use.name, "buffer": buffer}
            | ({"most": bound} if "most" in use.parameters else {})
            for use in whole.strategies
        ],
        privacy=whole.privacy.model_copy(update={"bound": bound}),
        data=table,
    )


def of_groups(run: Run) -> dict[str, float]:
    """The mean ε of each group's clients."""
    last = run.privacy().groupby("client")["epsilon"].max()
    frame = run.clients.set_index("client").assign(epsilon=last).fillna({"epsilon": 0.0})
    return dict(frame.groupby("group")["epsilon"].mean())


def told(values: list[float]) -> str:
    """A mean of shares, in percent, and its standard deviation."""
    return f"{100 * mean(values):.1f} ± {100 * (stdev(values) if len(values) > 1 else 0):.1f}"


def main() -> None:
    """Prints one row per fleet, strategy and target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[15, 150])
    parser.add_argument("--targets", type=float, nargs="+", default=[2.0, 8.0, 32.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data")
    given = parser.parse_args()
    print("| Clients | Strategy | largest ε | noise z | ε fast | ε slow | accuracy | slow labels |")
    print("|---|---|---|---|---|---|---|---|")
    for clients in given.sizes:
        whole = sized(load("private"), clients, given.data)
        table = whole.privacy
        assert table is not None and table.delta is not None and table.noise is not None
        for use in whole.strategies:
            only = whole.checked(strategies=(use,))
            losses = []
            for seed in range(given.seeds):
                run = simulate(only.checked(aggregations=whole.aggregations, data=None, model=None), seed=seed)
                losses.append(run.privacy()["loss"].max() * table.noise**2)
            for target in (None, *given.targets):
                noises, runs = [], []
                for seed, loss in enumerate(losses):
                    noise = None if target is None else sqrt(loss / allowance(target, table.delta))
                    change = {"noise": noise} | ({"delta": None} if noise is None else {})
                    noises.append(noise or 0.0)
                    runs.append(simulate(only.checked(privacy=table.model_copy(update=change)), seed=seed))
                paid = [{} if target is None else of_groups(run) for run in runs]
                fast, slow = (mean(each.get(name, float("inf")) for each in paid) for name in ("fast", "slow"))
                whole_scores, slow_scores = (
                    [run.accuracy(*scope) for run in runs] for scope in ((), ("group", "slow"))
                )
                print(
                    f"| {clients} | {use.label} | {target or '∞'} | {mean(noises):.2f} | {fast:.1f} | {slow:.1f} "
                    f"| {told(whole_scores)} | {told(slow_scores)} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
