"""What a task is: a loss, metrics, and what targets look like. tasks.py has those that come with fairlag."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import nan
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlag.core.types import Floats, Integers
from fairlag.errors import InputError
from fairlag.learn.failure import reason
from fairlag.learn.targets import Shape, Targets
from fairlag.text import scored

LOSS = scored.LOSS.name
"""The name under which the mean loss is recorded, beside the metrics of every task."""


class Better(Enum):
    """Which values of a metric are better.

    >>> Better("lower")
    <Better.LOWER: 'lower'>
    """

    HIGHER = "higher"
    LOWER = "lower"


def mean(sums: Floats, examples: Integers) -> float:
    """The mean over all examples."""
    return float(sums.sum()) / int(examples.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A score by name: from what each example adds, or from all predictions together. Give `adds` or `whole`.

    >>> from dataclasses import replace
    >>> from fairlag.learn.tasks import regression
    >>> close = Metric(name="close", better=Better.HIGHER, adds=lambda out, target: ((out - target).abs() < 10).all(1))
    >>> [metric.name for metric in replace(regression(), metrics=(close,)).metrics]
    ['close']
    """

    name: str
    better: Better
    adds: Callable[[Tensor, Tensor], Tensor] | None = None
    """What examples add, from a batch of outputs and its targets: one number per example; for labels, per label too."""
    of: Callable[[Floats, Integers], float] = mean
    """The score from what was added and the number of examples, each per class, per label, or of all."""
    whole: Callable[[NDArray[Any], NDArray[Any]], float] | None = None
    """The score from the outputs for all examples and their targets; they are kept while a version is evaluated."""
    rate: bool = False
    """Is it a share of examples? It is then written in per cent, and has a standard error."""

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name in scored.TAKEN:
            others = ", ".join(scored.TAKEN)
            raise InputError(
                f"a metric is named {self.name!r}, it must be a word such as macro_f1, but none of {others}"
            )
        if (self.adds is None) == (self.whole is None):
            raise InputError(f"the metric {self.name!r} must have either `adds` or `whole`")

    @property
    def scored(self) -> scored.Scored:
        """What runs record of it."""
        return scored.Scored(self.name, self.better is Better.HIGHER, self.rate)


class ScoreSums(NamedTuple):
    """Sums over evaluated examples, each per class, per label, or of all; and the predictions that metrics need."""

    examples: Integers
    sums: Mapping[str, Floats]
    """By the name of the metric."""
    kept: tuple[NDArray[Any], NDArray[Any]] | None = None
    """The outputs and the targets, one row per example."""


def total(parts: Sequence[ScoreSums]) -> ScoreSums:
    """The sum of all parts, added in their order."""
    examples, sums, kept = zip(*parts, strict=True)
    added = {name: sum((part[name] for part in sums[1:]), sums[0][name]) for name in sums[0]}
    pairs = [pair for pair in kept if pair is not None]
    rows = (np.concatenate([each[0] for each in pairs]), np.concatenate([each[1] for each in pairs])) if pairs else None
    return ScoreSums(sum(examples[1:], examples[0]), added, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is learnt: the loss to be minimised, the metrics by which models are judged, and what is predicted.

    >>> def absolute(output: Tensor, target: Tensor) -> Tensor:
    ...     return (output - target).abs().mean(1)
    >>> mae = Metric(name="mae", better=Better.LOWER, adds=absolute)
    >>> task = Task(loss=absolute, metrics=(mae,), targets=Targets.NUMBERS)
    >>> task.losses(torch.tensor([[3.0]]), torch.tensor([[1.0]]))
    tensor([2.])
    """

    loss: Callable[[Tensor, Tensor], Tensor]
    """Of outputs and targets: one number per example, or one for the batch; training minimises the mean."""
    metrics: tuple[Metric, ...]
    """The first leads: targets are of it, and runs are ranked by it."""
    targets: Targets
    others: tuple[Metric, ...] = ()
    """Further metrics that an experiment can ask for by name."""
    output: Callable[[Shape, int], Shape] | None = None
    """The shape of a model's output for one example, from that of a target and `classes`; None: what targets say."""

    def __post_init__(self) -> None:
        names = [LOSS, *(metric.name for metric in (*self.metrics, *self.others))]
        if not self.metrics:
            raise InputError("a task has no metrics, it must have at least one")
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"a task has two metrics named {twice!r}: give each its own name")

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        """The losses of a batch; refuses a loss that is neither one number per example nor one for the batch."""
        found = self.loss(output, target)
        labels = output.shape if self.targets is Targets.LABELS else None
        if not isinstance(found, Tensor) or found.shape not in ((), output.shape[:1], labels):
            shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise InputError(
                f"the loss of {len(output)} examples is {shape}, it must be one number, or one number per example"
            )
        return found

    def measured(self, output: Tensor, target: Tensor) -> dict[str, NDArray[Any]]:
        """What each example of a batch adds to each sum."""
        losses = self.losses(output, target)
        found = {LOSS: losses.expand(len(output)) if losses.ndim == 0 else losses}
        for metric in self.metrics:
            if metric.adds is not None:
                found[metric.name] = _checked(metric, metric.adds(output, target), output, self.targets)
        return {name: values.double().numpy() for name, values in found.items()}

    def kept(self, output: Tensor, target: Tensor) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """What is kept of a batch; None if all metrics are computed from sums."""
        needed = any(metric.whole is not None for metric in self.metrics)
        return (output.numpy(), target.numpy()) if needed else None

    def sums(
        self,
        values: Mapping[str, NDArray[Any]],
        targets: NDArray[Any],
        classes: int,
        kept: tuple[NDArray[Any], NDArray[Any]] | None = None,
    ) -> ScoreSums:
        """What a chunk of examples adds to an evaluation."""
        sums = {name: self.targets.summed(each, targets, classes) for name, each in values.items()}
        if self.targets is Targets.CLASSES:
            return ScoreSums(np.bincount(targets, minlength=classes), sums, kept)
        return ScoreSums(np.full(classes if self.targets is Targets.LABELS else 1, len(targets)), sums, kept)

    def scores(self, found: ScoreSums, cells: Sequence[int]) -> dict[str, float]:
        """The loss and the metrics on some classes or labels, by name; without those that need all predictions."""
        chosen = list(cells)
        examples = found.examples[chosen]
        scores = {LOSS: mean(found.sums[LOSS][chosen], examples)}
        for metric in self.metrics:
            if metric.whole is None:
                scores[metric.name] = metric.of(found.sums[metric.name][chosen], examples)
            elif self.targets is Targets.LABELS and found.kept is not None:
                scores[metric.name] = metric.whole(*(rows[:, chosen] for rows in found.kept))
            elif len(chosen) == len(found.examples):
                scores[metric.name] = nan if found.kept is None else metric.whole(*found.kept)
        return scores

    def check(self, name: str, output: object, target: Shape, classes: int) -> None:
        """Refuses a model whose output for 2 examples does not fit, and a loss or metric that cannot take it."""
        wanted = (self.output or self.targets.output)(target, classes)
        found = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        if not isinstance(output, Tensor) or found != (2, *wanted):
            what = "one number per label" if self.targets in (Targets.CLASSES, Targets.LABELS) else "as its task says"
            raise InputError(f"the model {name!r} returns {found} for 2 examples, it must be {(2, *wanted)}: {what}")
        kind = torch.float32 if self.targets is Targets.NUMBERS else torch.int64
        try:
            self.measured(output, torch.zeros(2, *target, dtype=kind))
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"the loss or a metric cannot take outputs of the shape {found} and targets of the shape "
                f"{(2, *target)}: {reason(error)}"
            ) from error


def _checked(metric: Metric, added: object, output: Tensor, targets: Targets) -> Tensor:
    wanted = (len(output), *(output.shape[1:] if targets is Targets.LABELS else ()))
    found = tuple(added.shape) if isinstance(added, Tensor) else type(added).__name__
    if not isinstance(added, Tensor) or found != wanted:
        raise InputError(f"the metric {metric.name!r} of {len(output)} examples adds {found}, it must be {wanted}")
    return added
