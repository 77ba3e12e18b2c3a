"""The models that come with fairlag, built for the shape of the data; your own model is a function that returns one."""

import inspect
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from fairlag import imported
from fairlag.core import seeds
from fairlag.data.whole import whole
from fairlag.errors import InputError
from fairlag.learn.exclusive import exclusive
from fairlag.learn.failure import reason
from fairlag.learn.sequences import lstm, transformer
from fairlag.learn.targets import Shape

Make = Callable[..., nn.Module]


def build(
    use: str | Make,
    parameters: Mapping[str, object],
    *,
    shape: Shape,
    classes: int,
    seed: int,
    folder: Path | None = None,
    fits: Callable[[str, object], None] | None = None,
    tokens: bool = False,
) -> nn.Module:
    """The model with this name for examples of this shape; the seed determines its initial weights.

    `use` is one of MODELS, or your own function ("module:function", or the function itself) that returns an
    `nn.Module`; it gets `shape` and `classes` if it has parameters with these names. `fits` gets its name and its
    output for two examples, and refuses what the task cannot take. Inputs are int64 if they are `tokens`.

    >>> build("logistic", {}, shape=(1, 8, 8), classes=10, seed=0)
    Sequential(
      (0): Flatten(start_dim=1, end_dim=-1)
      (1): Linear(in_features=64, out_features=10, bias=True)
    )
    """
    make, name = imported.found(use, MODELS, "model", folder), imported.name_of(use)
    accepted = inspect.signature(make).parameters
    known = {key: value for key, value in (("shape", shape), ("classes", classes)) if key in accepted}
    with exclusive(seeds.key(seed, "model")):
        model = imported.called(make, name, {**known, **parameters}, "model")
        if not isinstance(model, nn.Module):
            raise InputError(f"the model {name!r} returned {type(model).__name__}, it must return an nn.Module")
        if callable(getattr(model, "loss", None)):
            raise InputError(
                f"the model {name!r} has a `loss` of its own, which is never called: training minimises the "
                "loss of the [task], by default the cross-entropy of the model's output; remove or rename it"
            )
        # Still under the seed: lazy layers draw their initial weights at their first example.
        output = _output(model, name, torch.zeros(2, *shape, dtype=torch.int64 if tokens else torch.float32))
        if fits is not None:
            fits(name, output)
    return model


def logistic(shape: Shape, classes: int) -> nn.Module:
    """Softmax regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))


def mlp(shape: Shape, classes: int, hidden: int = 64, layers: int = 1) -> nn.Module:
    """A multilayer perceptron: hidden layers of equal width, with ReLU."""
    whole(hidden, "hidden of the mlp (the width of every hidden layer)", 1)
    whole(layers, "layers of the mlp", 1)
    parts: list[nn.Module] = [nn.Flatten()]
    width = prod(shape)
    for _ in range(layers):
        parts += [nn.Linear(width, hidden), nn.ReLU()]
        width = hidden
    return nn.Sequential(*parts, nn.Linear(width, classes))


def fashion_cnn(shape: Shape, classes: int) -> nn.Module:
    """The paper bench's CNN for Fashion-MNIST: convolutions 32-32, pool, 64-64, pool, linear 128, linear."""
    return _cnn(shape, classes, {32: 8, 64: 16})


def cifar_cnn(shape: Shape, classes: int) -> nn.Module:
    """The paper bench's CNN for CIFAR-10: as for Fashion-MNIST, with a third block 128-128."""
    return _cnn(shape, classes, {32: 8, 64: 16, 128: 32})


MODELS: dict[str, Make] = {make.__name__: make for make in (logistic, mlp, fashion_cnn, cifar_cnn, lstm, transformer)}


class MaxPool2x2(nn.Module):
    """Bit-identical to `nn.MaxPool2d(2)`, in values and gradients, including ties; 1.3 to 2.8 times as fast on a CPU.

    PyTorch vectorises the comparison only if the channels of a pixel are neighbours in memory. So the places of the
    maxima are found in a copy with that layout, and their values are read from the original.

    >>> images = torch.rand(1, 16, 4, 4)
    >>> torch.equal(MaxPool2x2()(images), nn.MaxPool2d(2)(images))
    True
    """

    def forward(self, images: Tensor) -> Tensor:
        """The maximum of each block of two by two pixels."""
        with torch.no_grad():
            neighbours = images.contiguous(memory_format=torch.channels_last)
            _, places = functional.max_pool2d(neighbours, 2, return_indices=True)
        return images.flatten(2).gather(2, places.flatten(2)).view(places.shape)


def _cnn(shape: Shape, classes: int, blocks: dict[int, int]) -> nn.Module:
    """Blocks of two 3×3 convolutions and a pool; `blocks` maps the channels to the groups of GroupNorm."""
    if len(shape) != 3 or min(shape[1:]) < 2 ** len(blocks):
        least = 2 ** len(blocks)
        raise InputError(f"this CNN needs images of at least {least}×{least} pixels, the examples have shape {shape}")
    channels, height, width = shape
    parts: list[nn.Module] = []
    for place, (wide, groups) in enumerate(blocks.items()):
        for narrow in (channels, wide):
            parts += [nn.Conv2d(narrow, wide, 3, padding=1), nn.ReLU(), nn.GroupNorm(groups, wide)]
        parts += [MaxPool2x2(), nn.Dropout2d(0.5 if place else 0.3)]
        channels, height, width = wide, height // 2, width // 2
    parts += [nn.Flatten(), nn.Linear(channels * height * width, 128), nn.ReLU(), nn.GroupNorm(32, 128)]
    return nn.Sequential(*parts, nn.Dropout(0.5), nn.Linear(128, classes))


def _output(model: nn.Module, name: str, inputs: Tensor) -> object:
    """What a model returns for these inputs; refuses one that cannot take them, before anything starts."""
    training = model.training
    try:
        with torch.no_grad():
            return model.eval()(inputs)
    except Exception as error:
        shape, what, advice = tuple(inputs.shape[1:]), "examples", ""
        if not inputs.is_floating_point():
            what, advice = "token ids", " (whole numbers in arrays are token ids: save measurements as float32)"
        raise InputError(f"the model {name!r} cannot take {what} of shape {shape}: {reason(error)}{advice}") from error
    finally:
        model.train(training)
