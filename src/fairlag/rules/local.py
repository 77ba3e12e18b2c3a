"""What a strategy asks of local training, beyond the settings of the experiment."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from operator import index
from typing import Protocol, runtime_checkable

from fairlag.core.buffer import Buffer
from fairlag.core.state import Savable, State, rows, table
from fairlag.core.types import Floats
from fairlag.core.vector import Matrix, Vector
from fairlag.core.view import View
from fairlag.errors import StrategyError
from fairlag.rules import check
from fairlag.rules.drift import drifts
from fairlag.rules.rule import label_of, rule_errors


class Direction(Protocol):
    """A local step direction other than the gradient. It remembers vectors between steps and between tasks.

    It is sent to other processes, so it must be picklable, as a frozen dataclass is.
    """

    @property
    def vectors(self) -> int:
        """How many vectors of the trained parameters' size a client remembers; they start at 0."""

    def turn(self, gradient: Vector, memory: Matrix) -> None:
        """Overwrites the gradient with the direction, and the memory with what to remember."""


@runtime_checkable
class SharingDirection(Protocol):
    """A direction that also takes a vector from the server: the mean over all clients of what each of them shares.

    Every version carries the vector, 0 at first. Every update carries by how much its client's part has changed.
    """

    @property
    def vectors(self) -> int:
        """As for `Direction`."""

    def turn(self, gradient: Vector, memory: Matrix, shared: Vector) -> None:
        """As for `Direction`, with the server's vector."""

    def share(self, change: Vector, reach: float, memory: Matrix, shared: Vector) -> Vector:
        """Returns the change of what the client shares, and overwrites the memory, after a task.

        The task has changed the trained parameters by `change` = −`reach` · (mean direction): `reach` is the sum of its
        step sizes, as often as each gradient counts.
        """


class Stepper(Savable, Protocol):
    """The stateful half of a rule of steps: one per server."""

    def of(self, client: int) -> int:
        """The number of local steps of the client's next task."""

    def merged(self, buffer: Buffer, view: View) -> None:
        """Called with the updates that are about to be merged."""


@dataclass(frozen=True, slots=True)
class Steps:
    """A rule that sets the number of local steps per task, from the updates that are merged."""

    label: str
    start: Callable[[], Stepper]


Pace = Callable[[View, int], float]
"""A factor on the local step size of a client's next task."""


@dataclass(frozen=True, slots=True)
class Local:
    """What a strategy asks of local training; None leaves it to the experiment.

    >>> Local(prox=0.1)
    Local(prox=0.1)
    """

    prox: float | None = None
    """The factor μ of (μ/2)‖x − w‖², which pulls towards the model that the client received."""
    steps: Steps | None = None
    pace: Pace | None = None
    direction: Direction | SharingDirection | None = None
    losses: bool = False
    """Must clients report the root of the mean squared loss of their training examples?"""
    start_loss: bool = False
    """Must clients report the mean loss of all their training examples before training? It takes a further pass."""

    def __post_init__(self) -> None:
        if self.prox is not None and not (isinstance(self.prox, int | float) and 0 <= self.prox < math.inf):
            raise StrategyError(f"the proximal factor is {self.prox!r}, it must be a number of at least 0")
        if not isinstance(self.steps, Steps | None):
            raise StrategyError(
                f"steps of Local is {self.steps!r}, it must be a rule such as toward_drift(…), or None: "
                "to set a number, use the experiment or one of its client groups"
            )
        if not (self.pace is None or callable(self.pace)):
            raise StrategyError(f"pace of Local is {self.pace!r}, it must be a function of (view, client), or None")
        if self.direction is not None and not (hasattr(self.direction, "vectors") and hasattr(self.direction, "turn")):
            raise StrategyError(
                f"direction of Local is {self.direction!r}, it must have `vectors` and `turn(gradient, memory)`, "
                "like Feedback(0.5), or be None"
            )
        if self.losses and self.start_loss:
            raise StrategyError("Local has both losses and start_loss, but a client reports one loss: use one of them")

    @property
    def reads_updates(self) -> bool:
        """Does the server read single updates because of it?"""
        return self.steps is not None or self.losses or self.start_loss

    @property
    def vectors(self) -> int:
        """How many vectors each client remembers."""
        return 0 if self.direction is None else self.direction.vectors

    @property
    def shares(self) -> bool:
        """Does every version carry a vector for local training, and every update a change of it?"""
        return isinstance(self.direction, SharingDirection)

    def asked(self, view: View, client: int, stepper: Stepper | None) -> tuple[int, float]:
        """The steps (0 leaves them to the client) and the pace of the client's next task.

        >>> from fairlag.core.ledger import Ledger
        >>> Local(pace=lambda view, client: 2.0).asked(View(Ledger()), 0, None)
        (0, 2.0)
        """
        steps, pace = 0, 1.0
        with rule_errors("rule of", self):
            if stepper is not None:
                steps = index(stepper.of(client))
            if self.pace is not None:
                pace = float(self.pace(view, client))
        if stepper is not None and steps < 1:
            raise StrategyError(f"{label_of(self.steps)} asks for {steps} steps, it must ask for at least 1")
        if not 0 < pace < math.inf:
            raise StrategyError(f"the pace {label_of(self.pace)} is {pace}, it must be a positive number")
        return steps, pace

    @property
    def at_clients(self) -> "Local":
        """The part that is sent to clients. What only the server reads is left out, so it need not be picklable.

        >>> Local(prox=0.1, pace=lambda view, client: 2.0).at_clients
        Local(prox=0.1)
        """
        return replace(self, steps=None, pace=None)

    def __repr__(self) -> str:
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        words = [
            f"{name}={label_of(value) if callable(value) or name == 'steps' else repr(value)}"
            for name, value in given.items()
            if value is not None and value is not False
        ]
        return f"Local({', '.join(words)})"


@dataclass(frozen=True, slots=True)
class Feedback:
    """ASO-Fed's direction: ζ = g − g' + h, then h ← βh + (1−β)g', with g' the gradient of the step before.

    >>> import numpy as np
    >>> gradient, memory = np.array([4], np.float32), np.array([[1], [2]], np.float32)
    >>> Feedback(0.5).turn(gradient, memory)
    >>> gradient.tolist(), memory.tolist()
    ([5.0], [[4.0], [1.5]])
    """

    beta: float

    def __post_init__(self) -> None:
        if not 0 <= self.beta <= 1:
            raise StrategyError(f"beta is {self.beta}, it must be between 0 and 1")

    @property
    def vectors(self) -> int:
        """The last gradient, and h."""
        return 2

    def turn(self, gradient: Vector, memory: Matrix) -> None:
        """Overwrites g with ζ."""
        before, average = memory
        turned = gradient - before + average
        average *= self.beta
        average += (1 - self.beta) * before
        before[:] = gradient
        gradient[:] = turned


def log_delay(view: View, client: int) -> float:
    """Slower clients take longer steps: max(1, ln(mean duration of the client's tasks so far)), 1 before the first.

    >>> from fairlag.core.ledger import Ledger
    >>> ledger = Ledger(clients=1)
    >>> log_delay(View(ledger), 0)
    1.0
    >>> ledger.reals["busy"][0], ledger.integers["updates"][0] = 2 * math.e**3, 2
    >>> round(log_delay(View(ledger), 0), 9)
    3.0
    """
    usual = view.mean_duration_of(client)
    return max(1.0, math.log(usual)) if usual else 1.0


def toward_drift(target: float, *, gain: float, first: int) -> Steps:
    """AsyncFedED's steps: K ← K + round((target − γ)·gain), at least 1, after every merged update, from `first` on.

    >>> toward_drift(3.0, gain=1.0, first=10).label
    'toward_drift(3.0, gain=1.0, first=10)'
    """
    check.positive("the drift aimed at", target)
    check.not_negative("the gain", gain)
    check.whole("the first number of steps", first, 1)
    label = f"toward_drift({target}, gain={gain}, first={first})"
    return Steps(label, lambda: _TowardDrift(target, gain, first))


class _TowardDrift:
    def __init__(self, target: float, gain: float, first: int) -> None:
        self._target, self._gain, self._first = target, gain, first
        self._steps: dict[int, int] = {}

    def of(self, client: int) -> int:
        return self._steps.get(client, self._first)

    def merged(self, buffer: Buffer, view: View) -> None:
        found: Floats = drifts(buffer, view)
        for task, drift in zip(buffer.tasks, found.tolist(), strict=True):
            # The drift of an update of length 0 is infinite: it asks for the fewest steps.
            change = round((self._target - drift) * self._gain) if math.isfinite(drift) else -self.of(task.client)
            self._steps[task.client] = max(1, self.of(task.client) + change)

    def state(self) -> State:
        return table(self._steps.items(), client=int, steps=int)

    def restore(self, state: State) -> None:
        self._steps = dict(rows(state, "client", "steps"))
