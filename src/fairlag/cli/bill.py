"""`fairlag audit --privacy`: who pays how much privacy, without any training."""

import json
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer
from rich.console import RenderableType

from fairlag.analyse.bill import bills, terms
from fairlag.analyse.progress import Progress
from fairlag.errors import InputError
from fairlag.lab.experiment import Experiment
from fairlag.report.bill import bill_table

Private = Annotated[
    bool,
    typer.Option(
        "--privacy",
        help="Instead, show who pays how much privacy: ε per client group with the noise of \\[privacy] in the file, "
        "or with the next four options.",
    ),
]
Noise = Annotated[float | None, typer.Option(metavar="Z", help="For --privacy: the noise.")]
Delta = Annotated[float | None, typer.Option(metavar="D", help="For --privacy: the δ of ε, such as 1e-5.")]
Epsilon = Annotated[
    float | None,
    typer.Option(
        metavar="E", help="For --privacy: the largest ε of a client; shows which noise it needs and how long it lasts."
    ),
]
Bound = Annotated[
    float | None, typer.Option(metavar="B", help="For --privacy: the largest share of one client in a version.")
]


class Asked(NamedTuple):
    """The options for `--privacy`; None if not given."""

    noise: float | None
    delta: float | None
    epsilon: float | None
    bound: float | None

    def check_unused(self) -> None:
        """Refuses all of them, because there is no `--privacy`."""
        for name, value in self._asdict().items():
            if value is not None:
                raise InputError(f"--{name} {value:g} is only for --privacy: give --privacy as well")


def check_alone(others: Sequence[str]) -> None:
    """Refuses options that `--privacy` would ignore."""
    if others:
        raise InputError(f"{others[0]} has no effect with --privacy, which shows the bill alone: leave one of them out")


def bill(
    experiment: Experiment, asked: Asked, *, seeds: int, workers: int, progress: Progress
) -> tuple[str, RenderableType]:
    """The bill as JSON and as a table."""
    wanted = terms(experiment, noise=asked.noise, delta=asked.delta, epsilon=asked.epsilon)
    found = bills(experiment, wanted, bound=asked.bound, seeds=seeds, workers=workers, progress=progress)
    strategies = [each.as_json() for each in found]
    told = {"experiment": experiment.name, "delta": wanted.delta, "epsilon": wanted.epsilon, "strategies": strategies}
    return json.dumps(told, indent=2), bill_table(experiment, wanted, found, seeds)
