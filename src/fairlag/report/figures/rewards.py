"""What FairShare's `reward` buys if updates cost their senders something: fairness against speed at rest."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from fairlag.analyse.progress import Progress
from fairlag.analyse.settling import SEEDS, Equilibrium, Untried, equilibria, priced, rewarded
from fairlag.errors import InputError
from fairlag.lab.experiment import Experiment
from fairlag.report.figures.identity import Sheet, caption, drawing, percent, strategy_look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REWARDS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)


class Point(NamedTuple):
    """Where the fleet settles with a given reward."""

    reward: float
    found: Equilibrium


def rewards_figure(
    experiment: Experiment, sheet: Sheet, size: str = "double", *, workers: int = 1, progress: Progress | None = None
) -> None:
    """Jain's index against versions per unit of time, both where the fleet settles, one point per reward."""
    if not priced(experiment):
        raise InputError("rewards need a cost of updates: give --cost 0.01, or `cost` in [[clients]]")
    points = []
    rests = equilibria(rewarded(experiment, REWARDS), workers=workers, progress=progress)
    for reward, found in zip(REWARDS, rests, strict=True):
        if isinstance(found, Untried):
            ask = f"; `fairlag audit --cost` with {found.advice} computes it" if found.advice else ""
            raise InputError(f"where the fleet settles with reward {reward:g} is not known: {found.reason}{ask}")
        points.append(Point(reward, found))
    draw_rewards(points, sheet, size)


def draw_rewards(points: Sequence[Point], sheet: Sheet, size: str = "double") -> None:
    """Draws points that were already computed."""
    with drawing(sheet, 3.0, size) as figure:
        axes = figure.subplots()
        _draw(axes, points)
        axes.set_title("FairShare by account: what a reward s buys")
        caption(figure, _reading(points))


def _draw(axes: "Axes", points: Sequence[Point]) -> None:
    speeds, fair = [each.found.speed for each in points], [each.found.jain for each in points]
    axes.plot(speeds, fair, color=strategy_look(0).colour, marker="o", markersize=4, linewidth=1.2, clip_on=False)
    for reward, found in points:
        side, where = ("left", 6) if found.speed < 0.5 else ("right", -6)
        axes.annotate(
            f"s = {reward:g}", (found.speed, found.jain), (where, -3), textcoords="offset points", ha=side, va="top"
        )
    axes.set_xlim(0, 1)
    low = min(fair)
    axes.set_ylim(low - 0.12 * (1 - low) - 0.002, 1 + 0.02 * (1 - low))
    axes.xaxis.set_major_formatter(percent)
    axes.set_xlabel("versions per unit of time at rest, relative to full speed")
    axes.set_ylabel("Jain's index of influence at rest")


def _reading(points: Sequence[Point]) -> str:
    costs = ", ".join(f"{group.cost:g} ({group.name}, {group.clients:,} clients)" for group in points[0].found.groups)
    restless = ", ".join(f"{each.reward:g}" for each in points if not each.found.settled)
    unless = f" The fleet does not settle with s = {restless}: the last state is shown." if restless else ""
    return (
        "A share s of each version goes to its senders per update, 1 − s by account. At rest, every client has the "
        f"speed with the highest payoff: its influence − cost × its updates per unit of time. Cost: {costs}. Simulated "
        f"without training, {SEEDS} seeds.{unless}"
    )
