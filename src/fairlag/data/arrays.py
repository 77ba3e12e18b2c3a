"""From a user's values to the arrays that a data set takes; dataset.py checks the arrays."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlag.data.whole import whole
from fairlag.errors import InputError


def scaling(inputs: NDArray[Any]) -> tuple[float, float]:
    """The scale and offset of inputs: bytes are pixels, and 0 to 255 becomes −1 to 1."""
    return (1 / 127.5, -1.0) if inputs.dtype == np.uint8 else (1.0, 0.0)


def inputs_of(name: str, values: object) -> NDArray[Any]:
    """Inputs as uint8 if they are bytes, otherwise as float32; other whole numbers are refused.

    >>> inputs_of("mine", [[0.5], [1.5]]).dtype
    dtype('float32')
    """
    array = _array(values, f"inputs of {name}")
    if is_tokens(array):
        raise InputError(
            f"the inputs of {name} are {array.dtype}: models get float32, so token ids must come as int64 "
            "inputs of a fairlag Dataset; convert measurements with .astype('float32') and images with .astype('uint8')"
        )
    return numbers(array)


def is_tokens(array: NDArray[Any]) -> bool:
    """Are these whole numbers other than bytes?

    >>> is_tokens(np.array([[3, 7]])), is_tokens(np.zeros((1, 2), np.uint8))
    (True, False)
    """
    return array.dtype.kind in "iu" and array.dtype != np.uint8


def labels_of(name: str, values: object) -> NDArray[Any]:
    """Labels as float32 if they are numbers with a fraction, otherwise as int64."""
    array = _array(values, f"labels of {name}")
    with np.errstate(over="ignore"):  # as below
        return np.ascontiguousarray(array, np.float32 if array.dtype.kind == "f" else np.int64)


def numbers(array: NDArray[Any]) -> NDArray[Any]:
    """An array in C order: uint8 stays, everything else becomes float32."""
    with np.errstate(over="ignore"):  # values too large become infinite, which a Dataset refuses with a sentence
        return np.ascontiguousarray(array, np.uint8 if array.dtype == np.uint8 else np.float32)


def joined(what: str, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The inputs or labels of the training part and, if there is one, of the test part, as one array."""
    if len(parts) == 1:
        return parts[0]
    try:
        return np.concatenate(parts)
    except ValueError as error:
        raise InputError(f"the training and test {what} cannot be joined: {error}") from None


def shaped(name: str, inputs: NDArray[Any], shape: object) -> NDArray[Any]:
    """The inputs with this shape per example; two numbers are the height and width of an image with one channel.

    >>> shaped("mine", np.zeros((3, 6), np.float32), [2, 3]).shape
    (3, 1, 2, 3)
    """
    if shape is None:
        return inputs
    if not isinstance(shape, list | tuple) or not shape:
        raise InputError(f"shape of {name} is {shape!r}, but must be a list of whole numbers such as [28, 28]")
    sizes = [whole(each, f"a number in the shape of {name}", 1) for each in shape]
    features = prod(inputs.shape[1:])
    if prod(sizes) != features:
        raise InputError(
            f"shape of {name} is {shape!r}, which is {prod(sizes)} numbers, but each example has {features}"
        )
    return inputs.reshape(len(inputs), *([1] if len(sizes) == 2 else []), *sizes)


def _array(values: object, what: str) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"the {what} are not one array: {error}") from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"the {what} are {array.dtype}, but must be numbers")
    return array
