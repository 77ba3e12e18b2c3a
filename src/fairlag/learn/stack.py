"""A plain stack of linear layers in NumPy: the gradients of many models of that kind at once, each with its own batch.

A product of stacked matrices is computed matrix by matrix, sums run along the axes of one model alone: what comes out for
a model is the same to the bit whatever else is computed with it.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fairlag.types import Integers
from fairlag.vector import Matrix

LARGEST = 100_000
"""How many parameters a stack may have: beyond, arithmetic takes longer than Python, and torch is as good."""


@dataclass(frozen=True, slots=True)
class Linear:
    """A layer: its weights begin at a place of the flat vector, its biases, if it has any, come after them."""

    inputs: int
    outputs: int
    begin: int
    bias: bool

    @property
    def middle(self) -> int:
        """Where the weights end."""
        return self.begin + self.inputs * self.outputs

    @property
    def end(self) -> int:
        """Where the layer ends."""
        return self.middle + self.bias * self.outputs

    def weights(self, parameters: Matrix) -> NDArray[np.float32]:
        """The weights of all models, as views."""
        return parameters[:, self.begin : self.middle].reshape(-1, self.outputs, self.inputs)

    def biases(self, parameters: Matrix) -> Matrix:
        """The biases of all models, as a view."""
        return parameters[:, self.middle : self.end]


class Stack:
    """Linear layers with ReLU between them and cross-entropy behind.

    Parameters are (models, size); batches (models, examples, features); what is inside, (models, features, examples),
    so that sums over classes run along examples, which lie side by side.
    """

    def __init__(self, layers: tuple[Linear, ...]) -> None:
        self._layers = layers
        self.size = layers[-1].end

    def gradient(
        self, parameters: Matrix, inputs: NDArray[np.float32], labels: Integers, *, losses: bool = False
    ) -> tuple[Matrix, Matrix | None]:
        """For each model the gradient of its mean loss, and, where asked for, the loss of each of its examples."""
        values = self._values(parameters, inputs)
        output = values.pop()
        sums, chosen = _exponentials(output, labels)
        found = _losses(sums, chosen) if losses else None
        output /= sums
        output.reshape(-1)[_places(output, labels)] -= 1
        output *= 1 / labels.shape[1]
        return self._backwards(parameters, values, output), found

    def judged(self, parameters: Matrix, inputs: NDArray[np.float32], labels: Integers) -> tuple[Matrix, NDArray[Any]]:
        """For each model the loss of each example, and whether its label is the model's first choice."""
        output = self._values(parameters, inputs)[-1]
        right = output.argmax(1) == labels
        return _losses(*_exponentials(output, labels)), right

    def _values(self, parameters: Matrix, inputs: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """What goes into each layer, and what comes out of the last."""
        values = [inputs.transpose(0, 2, 1)]
        for layer in self._layers:
            if len(values) > 1:
                np.maximum(values[-1], 0, out=values[-1])
            value = np.matmul(layer.weights(parameters), values[-1])
            if layer.bias:
                value += layer.biases(parameters)[:, :, None]
            values.append(value)
        return values

    def _backwards(self, parameters: Matrix, values: list[NDArray[np.float32]], error: NDArray[np.float32]) -> Matrix:
        gradient = np.empty(parameters.shape, np.float32)
        for layer, value in zip(reversed(self._layers), reversed(values), strict=True):
            np.matmul(error, value.transpose(0, 2, 1), out=layer.weights(gradient))
            if layer.bias:
                np.add.reduce(error, axis=2, out=layer.biases(gradient))
            if layer.begin:
                error = np.matmul(layer.weights(parameters).transpose(0, 2, 1), error)
                error *= value > 0
        return gradient


def _exponentials(output: NDArray[np.float32], labels: Integers) -> tuple[NDArray[np.float32], Matrix]:
    """Overwrites outputs by their exponentials, the greatest of each example 1; their sums, and logs at the labels."""
    output -= np.maximum.reduce(output, axis=1, keepdims=True)
    chosen = output.reshape(-1)[_places(output, labels)]
    np.exp(output, out=output)
    return np.add.reduce(output, axis=1, keepdims=True), chosen


def _losses(sums: NDArray[np.float32], chosen: Matrix) -> Matrix:
    return np.log(sums[:, 0]) - chosen


def _places(output: NDArray[np.float32], labels: Integers) -> Integers:
    """Where the labels are in the flat output."""
    models, classes, examples = output.shape
    firsts = np.arange(models)[:, None] * (classes * examples) + np.arange(examples)
    return firsts + labels * examples


def recognised(model: nn.Module, shape: tuple[int, ...]) -> Stack | None:
    """The stack that a model is, for examples of that shape; None where it is something else, or large.

    >>> recognised(nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10)), (1, 8, 8)).size
    610
    >>> recognised(nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(64, 10)), (1, 8, 8))
    """
    parts = _parts(model)
    if not all(map(_is_plain, model.modules())) or (len(shape) > 1 and not isinstance(parts[0], nn.Flatten)):
        return None
    linear = [part for part in parts if type(part) is not nn.Flatten]
    layers = [part for part in linear[::2] if isinstance(part, nn.Linear)]
    if [type(part) for part in linear] != [nn.Linear, nn.ReLU] * (len(layers) - 1) + [nn.Linear]:
        return None
    ends = accumulate((each.weight.numel() + (each.bias is not None) * each.out_features for each in layers), initial=0)
    stack = Stack(
        tuple(
            Linear(each.in_features, each.out_features, begin, each.bias is not None)
            for each, begin in zip(layers, ends, strict=False)
        )
    )
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    return stack if stack.size == trained <= LARGEST and not list(model.buffers()) else None


def _parts(model: nn.Module) -> list[nn.Module]:
    """What a model does, one after the other; a module that is used twice is there twice."""
    return [part for each in model for part in _parts(each)] if isinstance(model, nn.Sequential) else [model]


def _is_plain(part: nn.Module) -> bool:
    """Is it one of the modules that are known here, and does it do what they do, with no hook in between?"""
    hooks = (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks)
    if any(hooks) or "forward" in vars(part):
        return False
    if type(part) is nn.Flatten:
        return (part.start_dim, part.end_dim) == (1, -1)
    return type(part) in (nn.Sequential, nn.Linear, nn.ReLU)
