"""The tasks that come with fairlag, by name; your own is a function that returns a `Task`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fairlag import imported
from fairlag.core.types import Floats, Integers
from fairlag.data.whole import whole
from fairlag.errors import InputError, nearest
from fairlag.learn.targets import Targets
from fairlag.learn.task import Better, Metric, Task, mean

Array = NDArray[Any]


def classification(top: int = 5) -> Task:
    """One class per example: cross-entropy; accuracy. Further metrics: balanced_accuracy, macro_f1, auroc, top_k."""
    return Task(
        loss=_cross_entropy,
        metrics=(_ACCURACY,),
        targets=Targets.CLASSES,
        others=(
            replace(_ACCURACY, name="balanced_accuracy", of=_balanced, rate=False),
            Metric(name="macro_f1", better=Better.HIGHER, whole=_macro_f1),
            Metric(name="auroc", better=Better.HIGHER, whole=_auroc),
            _top(top),
        ),
    )


def regression() -> Task:
    """One or more numbers per example: squared error; mse, mae and r2."""
    return Task(
        loss=_squared_error,
        metrics=(
            Metric(name="mse", better=Better.LOWER, adds=_squared_error),
            Metric(name="mae", better=Better.LOWER, adds=lambda output, target: (output - target).abs().mean(1)),
            Metric(name="r2", better=Better.HIGHER, whole=_r2),
        ),
        targets=Targets.NUMBERS,
    )


def multilabel() -> Task:
    """Any number of labels per example: binary cross-entropy of each; macro_f1, auroc and accuracy over labels."""
    return Task(
        loss=lambda output, target: functional.binary_cross_entropy_with_logits(
            output, target.to(output.dtype), reduction="none"
        ),
        metrics=(
            Metric(name="macro_f1", better=Better.HIGHER, whole=_macro_f1_of_labels),
            Metric(name="auroc", better=Better.HIGHER, whole=_auroc_of_labels),
            replace(_ACCURACY, adds=lambda output, target: (output > 0) == (target > 0)),
        ),
        targets=Targets.LABELS,
    )


def next_token(top: int = 5) -> Task:
    """A token per position: cross-entropy, averaged over positions; perplexity, accuracy and top_k."""
    return Task(
        loss=_cross_entropy,
        metrics=(
            Metric(name="perplexity", better=Better.LOWER, adds=_cross_entropy, of=_perplexity),
            _ACCURACY,
            _top(top),
        ),
        targets=Targets.TOKENS,
    )


TASKS: Mapping[str, Callable[..., Task]] = {
    make.__name__: make for make in (classification, regression, multilabel, next_token)
}


@dataclass(frozen=True, slots=True)
class TaskUse:
    """A task as an experiment file has it: any process builds the same from it.

    >>> [metric.name for metric in TaskUse("regression", metrics=("mae", "mse")).build().metrics]
    ['mae', 'mse']
    >>> TaskUse(metrics=("acuracy",)).build()
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: the task classification has no metric 'acuracy': did you mean 'accuracy'?
    """

    use: str | Callable[..., Task] = "classification"
    parameters: tuple[tuple[str, object], ...] = ()
    metrics: tuple[str, ...] = ()
    """Those to compute, the leading one first; none: the task's own."""

    def build(self, folder: Path | None = None) -> Task:
        """The task, with the metrics that are asked for."""
        name = imported.name_of(self.use)
        task = imported.called(imported.found(self.use, TASKS, "task", folder), name, dict(self.parameters), "task")
        if not isinstance(task, Task):
            raise InputError(f"the task {name} returned {type(task).__name__}, it must return a fairlag Task")
        if not self.metrics:
            return task
        known = {metric.name: metric for metric in (*task.metrics, *task.others)}
        if strange := next((each for each in self.metrics if each not in known), None):
            raise InputError(f"the task {name} has no metric {strange!r}: {nearest(strange, known)}")
        chosen = tuple(known[each] for each in self.metrics)
        return replace(task, metrics=chosen, others=tuple(each for each in known.values() if each not in chosen))


def _by_position(values: Tensor) -> Tensor:
    """One number per example: the mean over the positions of a sequence."""
    return values if values.ndim == 1 else values.flatten(1).mean(1)


def _cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    # The classes are PyTorch's second axis, and a model's last.
    found = functional.cross_entropy(output.movedim(-1, 1), target, reduction="none")
    return _by_position(found)


def _correct(output: Tensor, target: Tensor) -> Tensor:
    return _by_position((output.argmax(-1) == target).double())


_ACCURACY = Metric(name="accuracy", better=Better.HIGHER, adds=_correct, rate=True)


def _top(count: int) -> Metric:
    """Is the target among the `count` highest outputs?"""
    most = whole(count, "top of a task", 1)

    def found(output: Tensor, target: Tensor) -> Tensor:
        best = output.topk(min(most, output.shape[-1]), dim=-1).indices
        return _by_position((best == target[..., None]).any(-1).double())

    return Metric(name=f"top_{most}", better=Better.HIGHER, adds=found, rate=True)


def _squared_error(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean(1)


def _perplexity(sums: Floats, examples: Integers) -> float:
    try:
        return math.exp(mean(sums, examples))
    except OverflowError:
        return math.inf


def _balanced(sums: Floats, examples: Integers) -> float:
    there = examples > 0
    return float((sums[there] / examples[there]).mean())


def _r2(outputs: Array, targets: Array) -> float:
    from sklearn.metrics import r2_score  # type: ignore[import-untyped]  # importing it takes seconds

    return float(r2_score(targets, outputs)) if len(targets) > 1 and np.isfinite(outputs).all() else math.nan


def _macro_f1(outputs: Array, targets: Array) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(targets, outputs.argmax(1), average="macro", zero_division=0))


def _macro_f1_of_labels(outputs: Array, targets: Array) -> float:
    from sklearn.metrics import f1_score

    pairs = zip(targets.T, outputs.T > 0, strict=True)
    return float(np.mean([f1_score(*pair, zero_division=0) for pair in pairs]))


def _auroc(outputs: Array, targets: Array) -> float:
    """Of a class against all others, averaged over the classes that are there; of two classes, of the second."""
    classes = [1] if outputs.shape[1] == 2 else range(outputs.shape[1])
    shifted = np.exp(outputs - outputs.max(axis=1, keepdims=True), dtype=np.float64)
    shares = shifted / shifted.sum(axis=1, keepdims=True)
    return _auroc_of_labels(shares[:, classes], np.stack([targets == each for each in classes], axis=1))


def _auroc_of_labels(outputs: Array, targets: Array) -> float:
    """The mean over labels that some examples have and others do not."""
    from sklearn.metrics import roc_auc_score

    mixed = (targets.min(axis=0) != targets.max(axis=0)) & np.isfinite(outputs).all(axis=0)
    each = [roc_auc_score(targets[:, label], outputs[:, label]) for label in np.flatnonzero(mixed)]
    return float(np.mean(each)) if each else math.nan
