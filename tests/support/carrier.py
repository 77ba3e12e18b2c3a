"""A courier without threads, for a network in one thread."""

from collections.abc import Callable, Hashable
from typing import Any, Protocol

from flwr.app import Message

from fairlag.core.types import Dispatch
from fairlag.runtime.flower import courier

Reply = Message | Exception


class Watcher(Protocol):
    """What a carrier needs to know about its network."""

    clock: float

    def check_sent(self, name: Hashable, message: Message) -> None: ...
    def races(self) -> bool: ...


class Carrier(courier.Courier):
    """A courier that is shown to the network; its replies may come after they are forgotten."""

    def __init__(self, network: Watcher, grid: Any, deliver: Callable[[Hashable, Reply], None], **options: Any):
        super().__init__(grid, deliver, **options)
        self._network = network

    def send(self, name: Hashable, message: Message) -> None:
        self._network.check_sent(name, message)
        super().send(name, message)

    def forget(self, name: Hashable) -> None:
        if (pending := self._pending.get(name)) is not None and self._network.races():
            self._attend([pending])
        super().forget(name)

    @property
    def is_due(self) -> bool:
        return any(time <= self._network.clock and pending.wanted for time, _, pending in self._due)

    def carry(self) -> None:
        """Does what one of the threads does next."""
        request = self._next()
        assert request
        self._attend(request)

    def under_way(self) -> int:
        return sum(isinstance(name, Dispatch) for name in self._pending)
