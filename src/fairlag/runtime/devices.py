"""Devices that several clients share: a device does one task at a time, in the order in which they were handed out."""

from typing import Self

import numpy as np

from fairlag.core.state import Savable, State, take
from fairlag.fleet.clients import Fleet


class Devices:
    """When each device has done all the tasks that it was given, also those that were lost or cancelled.

    >>> from fairlag.fleet.clients import Group
    >>> from fairlag.fleet.delay import parse
    >>> devices = Devices(Fleet([Group("all", 2, parse(10), per_device=2)], seed=0))
    >>> devices.work(0, 0.0, 10.0), devices.work(1, 4.0, 10.0), devices.work(0, 30.0, 10.0)
    (10.0, 16.0, 10.0)
    """

    def __init__(self, fleet: Fleet) -> None:
        self._device_of: list[int] = fleet.device_of.tolist()
        self._free = [0.0] * (1 + max(self._device_of))
        """Per device: when it has done its tasks."""

    @classmethod
    def of(cls, fleet: Fleet, parts: dict[str, Savable]) -> Self | None:
        """The devices of a fleet, entered among the parts of a simulation; None if no clients share one."""
        if not fleet.sharing:
            return None
        parts["devices"] = devices = cls(fleet)
        return devices

    def work(self, client: int, time: float, seconds: float) -> float:
        """Gives the client's device a task that takes it so many seconds; returns how long until it is done."""
        device = self._device_of[client]
        self._free[device] = done = max(self._free[device], time) + seconds
        return done - time

    def state(self) -> State:
        """When each device is free."""
        return {"free": np.array(self._free)}

    def restore(self, state: State) -> None:
        """Replaces that with the saved times."""
        self._free = take(state, "free", np.ndarray).tolist()
