"""Conversion between the server and a fleet whose updates are masked: what clients must know, and what they send."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message
from numpy.typing import NDArray

from fairlag.core.secure import masked_update
from fairlag.core.types import Dispatch, Report, Update
from fairlag.core.vector import Layout, Vector
from fairlag.privacy.secure.seal import Sealed
from fairlag.rules.admit import well_formed
from fairlag.runtime.flower.wire import Wire, read

RUN, TASK, NAMES, CLIP = "secure-run", "secure-task", "secure-arrays", "secure-clip"
"""The configuration of a task: the run and the number of the task, which its seal names, the arrays whose changes are
masked, in order, and the largest length of the change, if there is one."""
MASKED, SEAL = "masked", "seal"
"""The arrays of a reply."""


class MaskedWire(Wire):
    """Turns tasks into messages, and masked replies into masked updates."""

    def __init__(self, layout: Layout, fixed: Mapping[str, NDArray[Any]], *, run: str, clip: float | None) -> None:
        super().__init__(layout, fixed)
        self._told = {RUN: run, NAMES: list(layout.names), **({} if clip is None else {CLIP: clip})}

    def task(
        self, task: Dispatch, parameters: Vector, asked: Mapping[str, Any], node: int, ttl: float | None
    ) -> Message:
        """The message of a task, with what the client must know to mask its update."""
        return super().task(task, parameters, {**asked, **self._told, TASK: task.task}, node, ttl)

    def _update(self, arrays: ArrayRecord, parameters: Vector, report: Report) -> Update | str:
        if set(arrays) != {MASKED, SEAL}:
            return "it is not masked"
        vector = read(arrays[MASKED], (self._layout.size,), np.uint64)
        seal = read(arrays[SEAL], (Sealed.SIZE,), np.uint8)
        if isinstance(vector, str) or isinstance(seal, str):
            return vector if isinstance(vector, str) else str(seal)
        update = masked_update(np.concatenate([vector, seal.view("<u8")]), report)
        return well_formed(update, update.delta.size, np.uint64) or update
