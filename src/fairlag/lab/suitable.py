"""Does a strategy fit the rest of its experiment? What it refuses of local training, data and client groups."""

from collections.abc import Mapping

from fairlag.core.strategy import Strategy
from fairlag.errors import InputError, StrategyError, nearest
from fairlag.lab.learning import Data
from fairlag.learn.local import Recipe
from fairlag.rules.rule import made_with
from fairlag.rules.weigh import by_effort


def check_local(strategy: Strategy, recipe: Recipe, label: str) -> None:
    """Refuses a strategy that asks for something that the local training cannot do, or cannot say of itself."""
    try:
        asked = recipe.asked(strategy.local)
    except InputError as error:
        raise StrategyError(f"{label} does not fit [local]: {error}") from None
    if asked.uncounted and (made_with(strategy.weigh, by_effort) or strategy.local.shares):
        raise StrategyError(
            f"{label} divides updates by how often gradients count in them, which is not known with {asked.uncounted}: "
            "use gradient descent (momentum and weight_decay of [local]), or another strategy"
        )


def check_trusted(strategy: Strategy, data: Data | None, recipe: Recipe, label: str) -> None:
    """Refuses a strategy that compares updates with a step of the server's own, if the server cannot make one."""
    if not strategy.reference or data is None:
        return
    if data.trusted is None:
        raise StrategyError(
            f"{label} compares updates with a step on the server's own examples, but it has none: give `trusted` in "
            "[data], such as trusted = 100"
        )
    if strategy.local.vectors or recipe.optimiser_state is not None:
        raise StrategyError(
            f"{label} compares updates with a step of the server's own, which needs clients that remember nothing "
            "between tasks"
        )


def check_importance(strategy: Strategy, groups: list[str]) -> None:
    """Refuses a number for a group that does not exist, because it would have no effect."""
    named = strategy.account.importance if strategy.account is not None else None
    for group in named if isinstance(named, Mapping) else ():
        if group not in groups:
            raise StrategyError(f"importance names the group {group!r}, which does not exist: {nearest(group, groups)}")
