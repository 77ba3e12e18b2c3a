"""A plain stack of linear layers in NumPy: the gradients of many models of the same shape at once, each on its batch.

A product of stacked matrices is computed matrix by matrix, and sums run along the axes of a single model. So the result
for a model is bit-identical, whatever else is computed with it.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fairlag.core.types import Integers
from fairlag.core.vector import Matrix

LARGEST = 100_000
"""The most parameters of a stack: beyond, arithmetic takes longer than Python's overhead, and torch is as fast."""


class Linear(NamedTuple):
    """A layer: the places of its weights and biases in the flat vector."""

    shape: tuple[int, int, int]
    """Models (−1 for any number), outputs, inputs."""
    where: slice
    biases: slice | None

    def weights(self, parameters: Matrix) -> NDArray[np.float32]:
        """The weights of all models, as views."""
        return parameters[:, self.where].reshape(self.shape)


class Stack:
    """Linear layers with ReLU between them and cross-entropy at the end.

    Parameters are (models, size); batches (models, examples, features); inner values (models, features, examples), so
    that sums over classes run along examples, which are contiguous.
    """

    def __init__(self, layers: tuple[Linear, ...]) -> None:
        self.layers = layers
        self.size: int = (layers[-1].biases or layers[-1].where).stop

    def step(
        self, parameters: Matrix, inputs: NDArray[np.float32], labels: Integers, rates: Matrix, *, losses: bool = False
    ) -> tuple[Matrix, Matrix | None]:
        """Per batch: the gradient of its mean loss times a rate, and, if asked for, the loss of each example.

        The rates are a column; the parameters have one row per batch, or one row for all.
        """
        values = self._values(parameters, inputs)
        output = values.pop()
        sums, places, found = _exponentials(output, labels, losses=losses)
        share = rates / np.float32(labels.shape[1])
        output *= share[:, :, None] / sums
        output.reshape(-1)[places] -= share
        return self._backwards(parameters, values, output), found

    def evaluated(
        self, parameters: Matrix, inputs: NDArray[np.float32], labels: Integers
    ) -> tuple[Matrix, NDArray[Any]]:
        """Per model: the loss of each example, and whether the model predicts its label."""
        output = self._values(parameters, inputs)[-1]
        right = output.argmax(1) == labels
        _, _, found = _exponentials(output, labels, losses=True)
        assert found is not None
        return found, right

    def _values(self, parameters: Matrix, inputs: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """The inputs of each layer, and the output of the last."""
        values = [inputs.transpose(0, 2, 1)]
        for layer in self.layers:
            if len(values) > 1:
                np.maximum(values[-1], 0, out=values[-1])
            value = np.matmul(layer.weights(parameters), values[-1])
            if layer.biases is not None:
                value += parameters[:, layer.biases, None]
            values.append(value)
        return values

    def _backwards(self, parameters: Matrix, values: list[NDArray[np.float32]], error: NDArray[np.float32]) -> Matrix:
        gradient = np.empty((len(error), self.size), np.float32)
        for layer, value in zip(reversed(self.layers), reversed(values), strict=True):
            np.matmul(error, value.transpose(0, 2, 1), out=layer.weights(gradient))
            if layer.biases is not None:
                np.add.reduce(error, axis=2, out=gradient[:, layer.biases])
            if layer.where.start:
                error = np.matmul(layer.weights(parameters).transpose(0, 2, 1), error)
                error *= value > 0
        return gradient


def _exponentials(
    output: NDArray[np.float32], labels: Integers, *, losses: bool
) -> tuple[NDArray[np.float32], Integers, Matrix | None]:
    """Overwrites outputs with their exponentials, scaled so that the largest of each example is 1.

    Returns their sums, the places of the labels in the flat output, and, if asked for, the losses.
    """
    output -= np.maximum.reduce(output, axis=1, keepdims=True)
    places = labels * labels.shape[1] + _firsts(*output.shape)
    chosen = output.reshape(-1)[places] if losses else None
    np.exp(output, out=output)
    sums = np.add.reduce(output, axis=1, keepdims=True)
    return sums, places, None if chosen is None else np.log(sums[:, 0]) - chosen


@lru_cache(256)
def _firsts(models: int, classes: int, examples: int) -> Integers:
    """Where each example's outputs begin in the flat output."""
    return np.arange(models)[:, None] * (classes * examples) + np.arange(examples)


def recognised(model: nn.Module, shape: tuple[int, ...]) -> Stack | None:
    """The stack that a model is, for examples of this shape; None if it is not one, or too large.

    >>> recognised(nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10)), (1, 8, 8)).size
    610
    >>> recognised(nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(64, 10)), (1, 8, 8))
    """
    parts = _parts(model)
    flat = len(shape) == 1 or (bool(parts) and type(parts[0]) is nn.Flatten)
    if not (flat and all(map(_is_plain, model.modules()))):
        return None
    linear = [part for part in parts if type(part) is not nn.Flatten]
    layers = [part for part in linear[::2] if isinstance(part, nn.Linear)]
    if [type(part) for part in linear] != [nn.Linear, nn.ReLU] * (len(layers) - 1) + [nn.Linear]:
        return None
    stack = Stack(tuple(_placed(layers)))
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    return stack if stack.size == trained <= LARGEST and not list(model.buffers()) else None


def _placed(layers: list[nn.Linear]) -> Iterator[Linear]:
    end = 0
    for layer in layers:
        begin, end = end, end + layer.weight.numel()
        where, biases = slice(begin, end), None
        if layer.bias is not None:
            biases = slice(end, end + layer.out_features)
            end = biases.stop
        yield Linear((-1, layer.out_features, layer.in_features), where, biases)


def _parts(model: nn.Module) -> list[nn.Module]:
    """A model's modules in order of execution; a module that is used twice appears twice."""
    return [part for each in model for part in _parts(each)] if isinstance(model, nn.Sequential) else [model]


def _is_plain(part: nn.Module) -> bool:
    """Is it one of the known modules, with their own forward method and without hooks?"""
    hooks = (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks)
    if any(hooks) or "forward" in vars(part):
        return False
    if type(part) is nn.Flatten:
        return (part.start_dim, part.end_dim) == (1, -1)
    return type(part) in (nn.Sequential, nn.Linear, nn.ReLU)
