"""An executor around another one: before an update is sent, its client changes it, for example masks it."""

from collections.abc import Callable

from fairlag.core.state import State
from fairlag.core.types import Dispatch, Update
from fairlag.core.vector import Vector
from fairlag.execute import Learning
from fairlag.learn.evaluation import Asked, Found
from fairlag.learn.learner import Learner
from fairlag.learn.placement import Placement
from fairlag.rules.local import Local


class Sending:
    """Trains by another executor; what is sent is a function of the trained update and of its task."""

    def __init__(self, inner: Learning, sent: Callable[[Update, Dispatch], Update]) -> None:
        self.inner = inner
        """The executor that trains."""
        self._sent = sent

    @property
    def learner(self) -> Learner | None:
        """None: compiled loops would not change anything."""
        return None

    def begin(self, seed: int, placement: Placement, local: Local) -> None:
        """Starts a new run in the executor inside."""
        self.inner.begin(seed, placement, local)

    def warm_up(self) -> None:
        """Starts the workers."""
        self.inner.warm_up()

    def submit(self, task: Dispatch, parameters: Vector, due: float) -> None:
        """Submits the task to the executor inside."""
        self.inner.submit(task, parameters, due)

    def result(self, task: Dispatch) -> Update:
        """The update that the client sends."""
        return self._sent(self.inner.result(task), task)

    def discard(self, number: int) -> None:
        """Forgets the task."""
        self.inner.discard(number)

    def evaluate(self, version: int, parameters: Vector, due: float, asked: Asked) -> None:
        """Requests an evaluation."""
        self.inner.evaluate(version, parameters, due, asked)

    def evaluated(self, patience: float = 0.0) -> list[tuple[int, Found]]:
        """The finished evaluations."""
        return self.inner.evaluated(patience)

    def state(self) -> State:
        """The state of the executor inside."""
        return self.inner.state()

    def restore(self, state: State) -> None:
        """Restores the executor inside."""
        self.inner.restore(state)

    def close(self) -> None:
        """Ends the workers."""
        self.inner.close()
