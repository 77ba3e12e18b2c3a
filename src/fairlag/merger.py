"""The arithmetic of an aggregation: a buffer of updates becomes the next version, rule by rule, each checked."""

import math
from collections.abc import Sequence
from contextvars import copy_context

import numpy as np

from fairlag.buffer import Buffer
from fairlag.errors import DivergedError, InputError, StrategyError
from fairlag.rules.keep import Keeping
from fairlag.rules.rule import blaming, failure, label_of
from fairlag.state import Leaf, Savable, State, copy_into, leaves, refill, take
from fairlag.strategy import Strategy
from fairlag.types import Dispatch, Floats, Report
from fairlag.vector import Layout, Matrix, Vector, finite
from fairlag.versions import Versions
from fairlag.view import View


class Merger:
    """Keeps the updates that wait, one row each, and what the server rule remembers from one version to the next."""

    def __init__(self, strategy: Strategy, versions: Versions, view: View, layout: Layout) -> None:
        if layout.size != versions.newest.size:
            raise InputError(
                f"the layout is one of {layout.size} numbers, there are {versions.newest.size} parameters: "
                "both must be of the same model"
            )
        self._strategy = strategy
        self._versions = versions
        self._view = view
        self._layout = layout
        self._state = strategy.apply.init(versions.newest, layout)
        self._size = versions.newest.size
        self._shows_updates = "weigh" in strategy.readers
        self._reducer = strategy.reduce.start(view) if isinstance(strategy.reduce, Keeping) else None
        self.stepper = strategy.local.steps.start() if strategy.local.steps is not None else None
        """Says how many local steps each task has, where the strategy does."""
        self._rows: Matrix = np.empty((strategy.trigger.needs, self._size), np.float32)
        # Numbers may overflow in it, without a warning: entered in a tenth of the time of np.errstate.
        self._quiet = copy_context()
        self._quiet.run(np.seterr, over="ignore", invalid="ignore")
        self.stores = self._size > 0 or self._shows_updates
        """Are updates looked at? Those of a model without parameters are only counted."""

    def store(self, delta: Vector, place: int) -> None:
        """Copies an update into the row of that number: from here on nobody else can change it."""
        if place >= len(self._rows):
            self._make_room(place + 1)
        self._rows[place] = delta

    def _make_room(self, count: int) -> None:
        while count > len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])

    def merge(
        self,
        tasks: tuple[Dispatch, ...],
        staleness: list[int],
        reports: list[Report],
        drafted: Sequence[bool] | None = None,
    ) -> tuple[Buffer, Floats]:
        """Weighs the stored updates and publishes the next version; returns what was weighed, and the weights."""
        buffer = Buffer(tasks, staleness, reports, self._rows if self._shows_updates else None, drafted)
        weights = self._weigh(buffer)
        if self._size:
            whole = Buffer(tasks, staleness, reports, self._rows, drafted)
            if self.stepper is not None:
                with blaming("rule of steps", self._strategy.local.steps):
                    self.stepper.merged(whole, self._view)
            self._versions.publish(self._stepped(whole, weights))
        else:
            self._versions.publish(self._versions.newest)
        return buffer, weights

    def _weigh(self, buffer: Buffer) -> Floats:
        weigh = self._strategy.weigh
        try:
            returned = weigh(buffer, self._view)
        except Exception as error:
            raise failure("weighting", weigh, error) from error
        try:
            weights = np.array(returned, np.float64)
        except (TypeError, ValueError):
            weights = np.empty(0)
        if weights.shape != (len(buffer),) or not all(map(math.isfinite, weights.tolist())):
            raise StrategyError(
                f"the weighting {label_of(weigh)} returned {returned!r} for a buffer of {len(buffer)}: "
                "it must return one finite number per update"
            )
        total = math.fsum(weights.tolist())
        # Whoever reads updates may find nothing in them: AsyncFedED weighs an update of length 0 by 0.
        if total < 0 or (total == 0 and not self._shows_updates):
            raise StrategyError(
                f"the weighting {label_of(weigh)} returned {returned!r}: weights must add up to more than 0; "
                "an update that is not wanted is refused by a rule of `admit`"
            )
        weights.setflags(write=False)
        return weights

    def _stepped(self, buffer: Buffer, weights: Floats) -> Vector:
        """Edits, reduces and applies: the next version's parameters."""
        strategy, parameters = self._strategy, self._versions.newest
        updates = buffer.updates
        if strategy.edit is not None:
            with blaming("edit", strategy.edit):
                updates = strategy.edit(updates, buffer, self._view)
            _check_shape("edit", strategy.edit, updates, (len(buffer), self._size))
        try:
            step = self._reduced(weights, updates, buffer)
        except Exception as error:
            raise failure("reduction", strategy.reduce, error) from error
        _check_shape("reduce", strategy.reduce, step, parameters.shape)
        parameters = self._quiet.run(self._applied, step, parameters)
        if not finite(parameters):
            raise DivergedError(
                f"version {self._view.version + 1} is not finite: the model diverged, smaller steps may help"
            )
        parameters.setflags(write=False)  # a new array, which nobody else knows: it is published as it is
        return parameters

    def _applied(self, step: Vector, parameters: Vector) -> Vector:
        # A step may be a view of the buffer's rows, which the next updates overwrite; a rule may keep it.
        given_away = step.flags.owndata and step.flags.writeable
        step = np.array(step, np.float32, copy=None if given_away else True)
        rule = self._strategy.apply
        try:
            step, self._state = rule.update(step, self._state, parameters)
        except Exception as error:
            raise failure("server rule", rule, error) from error
        _check_shape("apply", rule, step, parameters.shape)
        return np.asarray(parameters + step, np.float32)

    def _reduced(self, weights: Floats, updates: Matrix, buffer: Buffer) -> Vector:
        rule = self._strategy.reduce
        if self._reducer is not None:
            return self._reducer.reduce(weights, updates, buffer)
        assert not isinstance(rule, Keeping)
        return rule(weights, updates)

    @property
    def _parts(self) -> dict[str, Savable]:
        """What remembers something of its own."""
        parts = {"reducer": self._reducer, "stepper": self.stepper}
        return {name: part for name, part in parts.items() if part is not None}

    def state(self) -> State:
        """The updates that wait, and what the rules remember."""
        remembered = leaves(self._state)
        # A state that could not be restored is better noticed now than after a crash.
        self._refilled(self._strategy.apply.init(self._versions.newest, self._layout), remembered)
        return {
            "rows": self._rows[: self._view.buffered].copy(),
            "remembered": {str(place): leaf for place, leaf in enumerate(remembered)},
            **{name: part.state() for name, part in self._parts.items()},
        }

    def restore(self, state: State) -> None:
        """Waits with the updates that were saved, and remembers what the rules did."""
        for name, part in self._parts.items():
            part.restore(take(state, name, dict))
        remembered = take(state, "remembered", dict)
        self._state = self._refilled(self._state, [remembered[str(place)] for place in range(len(remembered))])
        count = len(take(state, "rows", np.ndarray))
        self._make_room(count)
        copy_into(self._rows[:count], state, "rows")

    def _refilled(self, structure: tuple[object, ...], remembered: list[Leaf]) -> tuple[object, ...]:
        try:
            return refill(structure, remembered)
        except InputError as error:
            raise StrategyError(
                f"the state of {label_of(self._strategy.apply)} is not one that its init makes: {error}"
            ) from error


def _check_shape(slot: str, rule: object, result: object, shape: tuple[int, ...]) -> None:
    if not isinstance(result, np.ndarray) or result.shape != shape:
        found = getattr(result, "shape", type(result).__name__)
        raise StrategyError(f"{slot} {label_of(rule)} returned {found}, it must return an array of shape {shape}")
