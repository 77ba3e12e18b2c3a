"""A plain stack of linear layers in NumPy: the gradients of many models of that kind at once, each with its own batch.

A product of stacked matrices is computed matrix by matrix, sums run along the axes of one model alone: what comes out
for a model is the same to the bit whatever else is computed with it.
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
"""How many parameters a stack may have: beyond, arithmetic takes longer than Python, and torch is as good."""


class Linear(NamedTuple):
    """A layer, and where in the flat vector its weights and its biases are."""

    shape: tuple[int, int, int]
    """Any number of models, outputs, inputs."""
    where: slice
    biases: slice | None

    def weights(self, parameters: Matrix) -> NDArray[np.float32]:
        """The weights of all models, as views."""
        return parameters[:, self.where].reshape(self.shape)


class Stack:
    """Linear layers with ReLU between them and cross-entropy behind.

    Parameters are (models, size); batches (models, examples, features); what is inside, (models, features, examples),
    so that sums over classes run along examples, which lie side by side.
    """

    def __init__(self, layers: tuple[Linear, ...]) -> None:
        self.layers = layers
        self.size: int = (layers[-1].biases or layers[-1].where).stop

    def step(
        self, parameters: Matrix, inputs: NDArray[np.float32], labels: Integers, rates: Matrix, *, losses: bool = False
    ) -> tuple[Matrix, Matrix | None]:
        """For each batch the gradient of its mean loss times a rate, and, where asked for, the loss of each example.

        The rates are a column; the parameters have a row for each batch, or one for all.
        """
        values = self._values(parameters, inputs)
        output = values.pop()
        sums, places, found = _exponentials(output, labels, losses=losses)
        share = rates / np.float32(labels.shape[1])
        output *= share[:, :, None] / sums
        output.reshape(-1)[places] -= share
        return self._backwards(parameters, values, output), found

    def judged(self, parameters: Matrix, inputs: NDArray[np.float32], labels: Integers) -> tuple[Matrix, NDArray[Any]]:
        """For each model the loss of each example, and whether its label is the model's first choice."""
        output = self._values(parameters, inputs)[-1]
        right = output.argmax(1) == labels
        _, _, found = _exponentials(output, labels, losses=True)
        assert found is not None
        return found, right

    def _values(self, parameters: Matrix, inputs: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """What goes into each layer, and what comes out of the last."""
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
    """Overwrites outputs by their exponentials, the greatest of each example 1.

    Their sums, where the labels are in the flat output, and, where asked for, the losses.
    """
    output -= np.maximum.reduce(output, axis=1, keepdims=True)
    places = labels * labels.shape[1] + _firsts(*output.shape)
    chosen = output.reshape(-1)[places] if losses else None
    np.exp(output, out=output)
    sums = np.add.reduce(output, axis=1, keepdims=True)
    return sums, places, None if chosen is None else np.log(sums[:, 0]) - chosen


@lru_cache(256)
def _firsts(models: int, classes: int, examples: int) -> Integers:
    """Where the outputs of each example begin in the flat output."""
    return np.arange(models)[:, None] * (classes * examples) + np.arange(examples)


def recognised(model: nn.Module, shape: tuple[int, ...]) -> Stack | None:
    """The stack that a model is, for examples of that shape; None where it is something else, or large.

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
