"""A model whose parameters and gradients are views of two flat vectors: one operation updates all of them."""

from itertools import accumulate
from math import prod

import numpy as np
import torch
from torch import nn

from fairlag.core.vector import Layout, Vector, published
from fairlag.errors import InputError
from fairlag.learn.transfer import CPU, download, overwrite


class Flat:
    """A model on one flat vector: trained parameters, then frozen parameters, then statistics.

    Statistics are the float buffers, such as BatchNorm's running mean and variance: an update holds their values, but
    changes of the parameters. Integer buffers, such as BatchNorm's count of batches, are not part of the vector: they
    keep their initial value.

    >>> flat = Flat(nn.Linear(2, 1))
    >>> flat.layout.names, flat.trained
    (('weight', 'bias'), 3)
    >>> flat.load(published([1.0, 2.0, 3.0]))
    >>> flat.model(torch.ones(1, 2)).item()
    6.0
    """

    def __init__(self, model: nn.Module, device: torch.device = CPU) -> None:
        """The model is moved to the device."""
        self.model = model if device.type == "cpu" else _moved(model, device)
        self.device = device
        trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
        frozen = {name: each for name, each in model.named_parameters() if not each.requires_grad}
        statistics = {name: each for name, each in model.named_buffers() if each.is_floating_point()}
        self._fixed = [(each, each.clone()) for each in model.buffers() if not each.is_floating_point()]
        self._buffers = [
            (owner, name, each)
            for owner in model.modules()
            for name, each in owner.named_buffers(recurse=False, remove_duplicate=False)
        ]
        tensors: dict[str, torch.Tensor] = {**trained, **frozen, **statistics}
        for name, each in tensors.items():
            if each.dtype != torch.float32 or each.device.type != device.type:
                raise InputError(
                    f"{name!r} of the model is {each.dtype} on {each.device}, it must be float32 on the CPU"
                )
        self.layout = Layout(tuple(tensors), tuple(tuple(each.shape) for each in tensors.values()), len(statistics))
        self._changing = self.layout.parameters.size
        self.trained = sum(each.numel() for each in trained.values())
        if not self.trained:
            raise InputError("the model has no parameters to train")
        self.vector = torch.cat([each.detach().reshape(-1) for each in tensors.values()])
        self.gradient = torch.zeros(self.trained, device=device)
        self.weights = self.vector[: self.trained]
        """The part of the vector that is trained by gradients."""
        self._take_views(tensors)

    def _take_views(self, tensors: dict[str, torch.Tensor]) -> None:
        ends = accumulate(prod(shape) for shape in self.layout.shapes)
        for each, end in zip(tensors.values(), ends, strict=True):
            place = slice(end - each.numel(), end)
            # The tensor stays the same object, because several modules may share it.
            each.data = self.vector[place].view(each.shape)
            if end <= self.trained:
                each.grad = self.gradient[place].view(each.shape)

    @property
    def parameters(self) -> Vector:
        """A published copy of the current vector."""
        return published(download(self.vector))

    def load(self, parameters: Vector) -> None:
        """Loads these parameters, and resets the buffers that are not part of them."""
        for owner, name, buffer in self._buffers:
            setattr(owner, name, buffer)
        overwrite(self.vector, parameters)
        for buffer, value in self._fixed:
            buffer.copy_(value)

    def write_update(self, parameters: Vector, out: Vector) -> None:
        """Writes the changes from these parameters, and the current statistics, into `out`."""
        for owner, name, buffer in self._buffers:
            now = getattr(owner, name)
            if now is not buffer:  # the forward pass assigns `self.mean = …` instead of changing it in place
                buffer.copy_(now.detach())
        now, changing = download(self.vector), self._changing
        np.subtract(now[:changing], parameters[:changing], out=out[:changing])
        out[changing:] = now[changing:]

    def moved(self, parameters: Vector, update: Vector) -> Vector:
        """The parameters after an update: changes are added, statistics replaced."""
        changing = self._changing
        return np.concatenate([parameters[:changing] + update[:changing], update[changing:]])


def _moved(model: nn.Module, device: torch.device) -> nn.Module:
    """The model on the device; modules that share a buffer still do."""
    shared = [
        (owner, name, id(buffer))
        for owner in model.modules()
        for name, buffer in owner.named_buffers(recurse=False, remove_duplicate=False)
    ]
    model = model.to(device)
    first: dict[int, torch.Tensor] = {}
    for owner, name, before in shared:
        setattr(owner, name, first.setdefault(before, getattr(owner, name)))
    return model
