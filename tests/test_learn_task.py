"""Tasks: metrics against independent formulas, added up over chunks; what does not fit is refused with a sentence."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fairlag.data.dataset import Dataset
from fairlag.errors import InputError
from fairlag.learn.targets import Targets
from fairlag.learn.task import Better, Metric, ScoreSums, Task, total
from fairlag.learn.tasks import TaskUse, classification, multilabel, next_token, regression

CUTS = (0, 13, 40, 57)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def picked(most: int, *shape: int, seed: int = 1) -> Tensor:
    return torch.randint(most, shape, generator=torch.Generator().manual_seed(seed))


def scored(
    task: Task, output: Tensor, target: Tensor, classes: int, cells: list[int] | None = None
) -> dict[str, float]:
    """Evaluated in chunks of different lengths."""
    parts = []
    for begin, end in pairwise(CUTS):
        part, wanted = output[begin:end], target[begin:end]
        values = task.measured(part, wanted)
        parts.append(task.sums(values, wanted.numpy(), classes, task.kept(part, wanted)))
    found: ScoreSums = total(parts)
    return task.scores(found, range(len(found.examples)) if cells is None else cells)


def test_classification_by_hand() -> None:
    output, target = drawn(57, 4), picked(4, 57)
    asked = TaskUse(
        metrics=("accuracy", "balanced_accuracy", "macro_f1", "auroc", "top_2"), parameters=(("top", 2),)
    ).build()
    found = scored(asked, output, target, 4)
    predicted, hits = output.argmax(1), output.argmax(1) == target
    assert found["loss"] == pytest.approx(float(functional.cross_entropy(output, target)), rel=1e-6)
    assert found["accuracy"] == int(hits.sum()) / 57
    recalls = [float(hits[target == each].double().mean()) for each in range(4)]
    assert found["balanced_accuracy"] == pytest.approx(sum(recalls) / 4)
    precisions = [float(hits[predicted == each].double().mean()) for each in range(4)]
    f1 = [2 * p * r / (p + r) for p, r in zip(precisions, recalls, strict=True)]
    assert found["macro_f1"] == pytest.approx(sum(f1) / 4)
    shares = output.double().softmax(1)
    areas = [area(shares[:, each], target == each) for each in range(4)]
    assert found["auroc"] == pytest.approx(sum(areas) / 4)
    seconds = [int(t) in row.argsort(descending=True)[:2].tolist() for row, t in zip(output, target, strict=True)]
    assert found["top_2"] == sum(seconds) / 57


def area(scores: Tensor, there: Tensor) -> float:
    """The share of pairs, one with the label and one without, in which the first scores higher."""
    higher = scores[there][:, None] - scores[~there][None]
    return float((higher > 0).double().mean() + (higher == 0).double().mean() / 2)


def test_classes_of_classification_have_scores_without_those_of_all_predictions() -> None:
    output, target = drawn(57, 3), picked(3, 57)
    asked = TaskUse(metrics=("accuracy", "macro_f1")).build()
    found = scored(asked, output, target, 3, [1])
    assert set(found) == {"loss", "accuracy"}
    assert found["accuracy"] == float((output.argmax(1) == target)[target == 1].double().mean())


def test_area_of_two_classes_is_that_of_the_second() -> None:
    output, target = drawn(57, 2), picked(2, 57)
    found = scored(TaskUse(metrics=("auroc",)).build(), output, target, 2)
    assert found["auroc"] == pytest.approx(area(output[:, 1] - output[:, 0], target == 1))


@pytest.mark.parametrize("width", [1, 3])
def test_regression_by_hand(width: int) -> None:
    output, target = drawn(57, width), 1e4 + drawn(57, width, seed=2)
    found = scored(regression(), output, target, width)
    off = (output - target).double()
    assert found["mse"] == found["loss"] == pytest.approx(float(off.square().mean()), rel=1e-6)
    assert found["mae"] == pytest.approx(float(off.abs().mean()), rel=1e-6)
    around = (target.double() - target.double().mean(0)).square().sum(0)
    assert found["r2"] == pytest.approx(float((1 - off.square().sum(0) / around).mean()), rel=1e-5)


def test_perfect_and_constant_predictions_have_an_r2_of_1_and_0() -> None:
    target = drawn(57, 1)
    assert scored(regression(), target, target, 1)["r2"] == 1
    assert scored(regression(), target.mean().expand(57, 1), target, 1)["r2"] == pytest.approx(0, abs=1e-6)


def test_multilabel_by_hand() -> None:
    output, target = drawn(57, 3), picked(2, 57, 3)
    found = scored(multilabel(), output, target, 3)
    chances = output.double().sigmoid()
    loss = -(target * chances.log() + (1 - target) * (1 - chances).log()).mean()
    assert found["loss"] == pytest.approx(float(loss), rel=1e-6)
    assert found["accuracy"] == int(((output > 0) == (target > 0)).sum()) / (57 * 3)
    f1 = []
    for label in range(3):
        said, there = output[:, label] > 0, target[:, label] > 0
        f1.append(2 * int((said & there).sum()) / (int(said.sum()) + int(there.sum())))
    assert found["macro_f1"] == pytest.approx(sum(f1) / 3)
    areas = [area(output[:, label], target[:, label] > 0) for label in range(3)]
    assert found["auroc"] == pytest.approx(sum(areas) / 3)
    second = scored(multilabel(), output, target, 3, [1])
    assert (second["macro_f1"], second["auroc"]) == pytest.approx((f1[1], areas[1]))


def test_a_label_that_all_examples_have_has_no_area() -> None:
    target = torch.ones(57, 1, dtype=torch.int64)
    assert np.isnan(scored(multilabel(), drawn(57, 1), target, 1)["auroc"])


def test_next_token_by_hand() -> None:
    output, target = drawn(57, 6, 9), picked(9, 57, 6)
    found = scored(next_token(top=3), output, target, 9)
    flat = functional.cross_entropy(output.reshape(-1, 9), target.reshape(-1))
    assert found["loss"] == pytest.approx(float(flat), rel=1e-6)
    assert found["perplexity"] == pytest.approx(float(flat.exp()), rel=1e-6)
    assert found["accuracy"] == pytest.approx(float((output.argmax(-1) == target).double().mean()))
    rank = (output > output.gather(-1, target[..., None])).sum(-1)
    assert found["top_3"] == pytest.approx(float((rank < 3).double().mean()))


def test_a_perplexity_that_overflows_is_infinite() -> None:
    output = torch.zeros(57, 1, 2)
    output[..., 0] = 1e4
    assert scored(next_token(), output, torch.ones(57, 1, dtype=torch.int64), 2)["perplexity"] == np.inf


def test_chunks_are_added_in_their_order_and_kept_rows_stay_in_theirs() -> None:
    parts = [
        ScoreSums(np.array([1]), {"loss": np.array([x])}, (np.array([x]), np.array([n])))
        for n, x in enumerate((1e16, 1.0, -1e16))
    ]
    whole = total(parts)
    assert whole.sums["loss"].tolist() == [0.0] and whole.examples.tolist() == [3]
    assert whole.kept is not None and whole.kept[1].tolist() == [0, 1, 2]


def test_a_loss_of_the_batch_counts_for_each_of_its_examples() -> None:
    task = replace(regression(), loss=lambda output, target: (output - target).square().mean())
    output, target = drawn(57, 1), drawn(57, 1, seed=3)
    assert scored(task, output, target, 1)["loss"] == pytest.approx(scored(task, output, target, 1)["mse"], rel=1e-6)


def own(loss: Callable[[Tensor, Tensor], Any], adds: Callable[[Tensor, Tensor], Any] | None = None) -> Task:
    """A user's own task."""
    metric = Metric(name="mine", better=Better.LOWER, adds=adds or (lambda output, target: output[:, 0]))
    return Task(loss=loss, metrics=(metric,), targets=Targets.NUMBERS)


@pytest.mark.parametrize(
    ("task", "output", "words"),
    [
        (own(lambda o, t: o - t), drawn(2, 3), r"the loss of 2 examples is \(2, 3\), it must be one number, or one"),
        (
            own(lambda o, t: 1.0),
            drawn(2, 3),
            "the loss of 2 examples is float, it must be one number",
        ),
        (own(lambda o, t: o[:, 0], lambda o, t: o), drawn(2, 3), r"the metric 'mine' of 2 examples adds \(2, 3\), it"),
        (own(lambda o, t: o @ t), drawn(2, 3), "the loss or a metric cannot take outputs of the shape"),
        (regression(), drawn(2, 4), r"the model 'm' returns \(2, 4\) for 2 examples, it must be \(2, 3\)"),
        (regression(), (1, 2), r"the model 'm' returns tuple for 2 examples, it must be \(2, 3\)"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_starts(task: Task, output: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        task.check("m", output, (3,), 3)


def test_a_task_may_say_itself_what_a_model_returns() -> None:
    task = replace(own(lambda o, t: o[:, 0]), output=lambda target, classes: (2 * classes,))
    task.check("m", drawn(2, 6), (3,), 3)
    with pytest.raises(InputError, match=r"must be \(2, 6\)"):
        task.check("m", drawn(2, 3), (3,), 3)


def labelled(labels: NDArray[Any], classes: int = 3) -> Dataset:
    return Dataset("tiny", np.zeros((len(labels), 1), np.float32), labels, classes=classes, official=len(labels))


NUMBERS = np.array([0.5, 1.5], np.float32)
TWO = np.array([[0, 1, 1], [1, 0, 0]])


@pytest.mark.parametrize(
    ("targets", "labels"),
    [
        (Targets.CLASSES, NUMBERS),
        (Targets.CLASSES, TWO),
        (Targets.NUMBERS, np.zeros((2, 1, 1), np.float32)),
        (Targets.LABELS, np.array([0, 1])),
        (Targets.LABELS, NUMBERS),
        (Targets.TOKENS, NUMBERS),
    ],
)
def test_targets_of_a_different_kind_are_refused(targets: Targets, labels: NDArray[Any]) -> None:
    with pytest.raises(InputError, match=f"^the labels of tiny are .*, but its task needs {targets.value}: see `use`"):
        targets.fitted(labelled(labels))


def test_targets_that_fit() -> None:
    assert Targets.CLASSES.fitted(labelled(np.array([0, 2]))).classes == 3
    for marks in (TWO, TWO.astype(np.float32)):
        fitted = Targets.LABELS.fitted(labelled(marks))
        assert fitted.classes == 3 and fitted.labels.tolist() == TWO.tolist() and fitted.labels.dtype == np.int64
    with pytest.raises(InputError, match="the label 1 of example 0 of tiny is 2, but its task needs a 0 or 1 per exam"):
        Targets.LABELS.fitted(labelled(2 * TWO))
    assert Targets.NUMBERS.fitted(labelled(TWO)).labels.tolist() == TWO.tolist()
    assert Targets.TOKENS.fitted(labelled(TWO)).labels.shape == (2, 3)
    numbers = Targets.NUMBERS.fitted(labelled(NUMBERS))
    assert numbers.classes == 1 and numbers.labels.tolist() == [[0.5], [1.5]]


def test_groups_hold_the_labels_of_their_examples() -> None:
    found = Targets.LABELS.held(TWO, np.array([0, 1, 2]), 3)
    assert [each.tolist() for each in found] == [[1, 2], [0]]
    assert Targets.NUMBERS.held(NUMBERS[:, None], np.array([0, 1, 2]), 1) == []


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (TaskUse("regresion"), "unknown task 'regresion': did you mean 'regression'"),
        (TaskUse("regression", (("top", 3),)), "the task regression has no parameter 'top'"),
        (TaskUse("next_token", (("top", 0),)), "top of a task is 0, but must be a whole number of at least 1"),
        (TaskUse("regression", metrics=("accuracy",)), "the task regression has no metric 'accuracy'"),
        (TaskUse("math:gcd"), "the task math:gcd returned int, it must return a fairlag Task"),
        (TaskUse(lambda: 3), "the task <lambda> returned int, it must return a fairlag Task"),  # type: ignore[arg-type, return-value]
        (TaskUse("regression", metrics=("mse", "mse")), "a task has two metrics named 'mse'"),
    ],
)
def test_a_task_that_cannot_be_built(use: TaskUse, words: str) -> None:
    with pytest.raises(InputError, match=words):
        use.build()


def test_a_metric_is_computed_in_one_way() -> None:
    with pytest.raises(InputError, match="the metric 'mine' must have either `adds` or `whole`"):
        Metric(name="mine", better=Better.LOWER)


def test_the_default_task_is_classification() -> None:
    task, default = TaskUse().build(), classification()
    assert [each.name for each in task.metrics] == [each.name for each in default.metrics] == ["accuracy"]
