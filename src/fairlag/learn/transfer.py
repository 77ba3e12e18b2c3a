"""Where arrays become tensors on a device, and tensors become arrays: nothing else crosses between the two."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

CPU = torch.device("cpu")


def upload(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    """The array as a tensor on the device. On the CPU it shares the array's memory, which must be writable.

    >>> array = np.ones(2, np.float32)
    >>> upload(array, CPU).zero_(), array.tolist()
    (tensor([0., 0.]), [0.0, 0.0])
    """
    if device == CPU:
        return torch.from_numpy(array)
    return torch.from_numpy(np.require(array, requirements="W")).to(device)


def overwrite(tensor: torch.Tensor, array: NDArray[Any]) -> None:
    """Copies the array, which may be read-only, into the tensor.

    >>> target = torch.zeros(2)
    >>> overwrite(target, np.ones(2, np.float32))
    >>> target
    tensor([1., 1.])
    """
    if tensor.is_cpu:
        tensor.numpy()[...] = array
    else:
        tensor.copy_(upload(array, tensor.device))


def download(tensor: torch.Tensor) -> NDArray[Any]:
    """The numbers of a tensor as an array. On the CPU it shares the tensor's memory.

    >>> download(torch.ones(2))
    array([1., 1.], dtype=float32)
    """
    numbers: NDArray[Any] = fetched(tensor.detach()).numpy()
    return numbers


def alter(tensor: torch.Tensor, by: Callable[[NDArray[Any]], object]) -> None:
    """Lets a function of arrays change a tensor in place.

    >>> target = torch.ones(2)
    >>> alter(target, lambda numbers: numbers.fill(3))
    >>> target
    tensor([3., 3.])
    """
    numbers = download(tensor)
    by(numbers)
    if not tensor.is_cpu:
        overwrite(tensor, numbers)


def fetched(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor on the CPU: itself if it is there. This is the only way back from a device."""
    return tensor if tensor.is_cpu else tensor.cpu()
