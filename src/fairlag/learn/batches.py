"""Batches of examples as tensors on the device of the model."""

import numpy as np
import torch

from fairlag.core.types import Integers
from fairlag.learn.examples import Examples
from fairlag.learn.transfer import upload

_KEPT = 1 << 30
"""The largest data set, in bytes, that is kept on a device; batches of larger ones are sent one by one."""


class Batches:
    """Makes batches of examples, scaled as the model sees them."""

    def __init__(self, examples: Examples, device: torch.device) -> None:
        self._inputs, self._labels, self._scaling = examples.inputs, examples.labels, examples.scaling
        self._device = device
        self._kept: tuple[torch.Tensor, torch.Tensor] | None = None
        if device.type != "cpu" and self._inputs.nbytes + self._labels.nbytes <= _KEPT:
            self._kept = upload(self._inputs, device), upload(self._labels, device)

    def __call__(self, chosen: Integers) -> tuple[torch.Tensor, torch.Tensor]:
        """The inputs and the targets of these examples."""
        device = self._device
        if self._kept is None:
            inputs, labels = upload(self._inputs[chosen], device), upload(self._labels[chosen], device)
        else:
            places = upload(chosen, device)
            inputs, labels = self._kept[0][places], self._kept[1][places]
        if self._inputs.dtype == np.int64:
            return inputs, labels
        # Into a new tensor: torch's results depend on the strides, even those of axes of length 1.
        inputs = torch.empty(len(chosen), *self._inputs.shape[1:], device=device).copy_(inputs)
        if self._scaling is not None:
            inputs = inputs.mul_(self._scaling[0]).add_(self._scaling[1])
        return inputs, labels
