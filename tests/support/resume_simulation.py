"""What other tests share with test_resume_simulation.py."""

from typing import Any

import numpy as np
from safetensors.numpy import load, save

from fairlag.core.state import State, pack, unpack


def plain(value: Any) -> Any:
    """Records, events and commands as values that compare, arrays by their bytes."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return (type(value), *map(plain, value)) if isinstance(value, tuple) else value


def exact(state: State) -> tuple[object, str]:
    arrays, text = pack(state)
    return {path: plain(array) for path, array in arrays.items()}, text


def through_a_file(state: State) -> State:
    arrays, text = pack(state)
    return unpack(load(save(arrays)), text)
