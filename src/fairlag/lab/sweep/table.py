"""The `[sweep]` table of an experiment file."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from fairlag.lab.learning import Table, checked_part

STRATEGIES = "strategies."
"""The start of a key that is about one strategy."""
_UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> float:
    """The seconds of a duration such as 90s, 30m or 2h.

    >>> seconds("1.5h")
    5400.0
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if found is None or not float(found[1]):
        raise ValueError(f"it is {text!r}, but must be a duration above 0, such as 90s, 30m or 2h")
    return float(found[1]) * _UNITS[found[2]]


def _checked_budget(text: str | None) -> str | None:
    if text is not None:
        seconds(text)
    return text


def _flat(tables: Any) -> Any:
    """Nested tables as dotted keys: TOML reads `local.lr = …` as a table."""
    return dict(_dotted(tables)) if isinstance(tables, Mapping) else tables


def _dotted(tables: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


class Sweep(Table):
    """A `[sweep]` table: what `fairlag sweep` tries, how much of it, and what is best."""

    over: Annotated[dict[str, Any], BeforeValidator(_flat)] = Field(
        default={},
        description="What is tried: per key a list of values, or a range such as `log(0.01, 0.3)`, `uniform(0, 1)` or "
        "`integers(2, 20)`. A key is a parameter (of every strategy that has it), `local.KEY`, or "
        "`strategies.NAME.KEY` for one strategy.",
    )
    search: Literal["grid", "random", "guided"] | None = Field(
        default=None,
        description="How settings are chosen: all of them (`grid`), at random, or `guided` by earlier trials, which "
        "needs the extra `sweep`. By default `grid`, or `random` if there are ranges or `trials`.",
    )
    trials: int | None = Field(default=None, ge=1, description="The number of trials per strategy.")
    seeds: int = Field(default=3, ge=1, description="The number of seeds per trial.")
    tests: int = Field(default=5, ge=1, description="The number of fresh seeds that the best settings are tested with.")
    metric: str | None = Field(
        default=None,
        description="What is best: a metric such as `accuracy`, `group` (the leading metric of the worst client "
        "group), or `time:0.9` (the time to reach that value). By default the leading metric.",
    )
    budget: Annotated[str | None, AfterValidator(_checked_budget)] = Field(
        default=None,
        description="The most time for trials, such as `90s`, `30m` or `2h`. When it is over, no further trials begin. "
        "All strategies have made the same number then.",
    )
    validation: Annotated[float, AfterValidator(checked_part)] = Field(
        default=0.2, description="The share of the training examples that trials are judged on."
    )

    def without(self, names: Collection[str]) -> "Sweep":
        """The table without what it says of single strategies with these names.

        >>> Sweep(over={"lr": [1, 2], "strategies.fedprox.mu": [0.1, 1]}).without(["fedprox"]).over
        {'lr': [1, 2]}
        """
        starts = tuple(f"{STRATEGIES}{name}." for name in names)
        over = {key: values for key, values in self.over.items() if not key.startswith(starts)}
        return self.model_copy(update={"over": over})
