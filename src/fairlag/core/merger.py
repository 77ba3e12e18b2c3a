"""The arithmetic of an aggregation: a buffer becomes the next version, rule by rule, with every result checked."""

import math
from collections.abc import Sequence
from contextvars import copy_context

import numpy as np

from fairlag.core.buffer import Buffer
from fairlag.core.mechanism import Mechanism
from fairlag.core.secure import SecureSum
from fairlag.core.state import Leaf, Savable, State, copy_into, leaves, refill, take
from fairlag.core.strategy import Strategy
from fairlag.core.types import Dispatch, Floats, Parts, Report
from fairlag.core.vector import Layout, Matrix, Vector, finite
from fairlag.core.versions import Versions
from fairlag.core.view import View
from fairlag.errors import DivergedError, InputError, StrategyError
from fairlag.rules import edit
from fairlag.rules.bounded import bounded
from fairlag.rules.control import SharedMean
from fairlag.rules.growth import objection, suspects, swelling
from fairlag.rules.keep import Keeping, Reducer
from fairlag.rules.mix import mixed
from fairlag.rules.rule import failure, label_of, provenance, rule_errors, traits


class Merger:
    """Holds the buffered updates, one row each, and the server rule's state between versions."""

    def __init__(
        self,
        strategy: Strategy,
        versions: Versions,
        view: View,
        layout: Layout,
        max_growth: float | None = None,
        secure: SecureSum | None = None,
        privacy: Mechanism | None = None,
    ) -> None:
        """With `secure`, updates are masked, and only it can add them up. `privacy` adds noise to every step."""
        shared = layout.parameters.size if strategy.local.shares else 0
        if layout.size + shared != versions.newest.size:
            raise InputError(
                f"the layout has {layout.size} numbers, the parameters have {versions.newest.size - shared}: "
                "both must belong to the same model"
            )
        strategy.check_model(layout)
        self._strategy = strategy
        self._versions = versions
        self._view = view
        self._layout = layout.parameters
        self._max_growth = max_growth
        self._size = versions.newest.size
        self._parameters = self._layout.size
        """How many of the numbers are parameters. Statistics follow, which rules do not see."""
        self._statistics = slice(self._parameters, layout.size)
        self._tail = slice(layout.size, self._size)
        """The vector that the direction of local steps takes from the server, if there is one."""
        self._shared = SharedMean(shared) if shared else None
        self._state = self._fresh_state()
        self._shows_updates = "weigh" in strategy.readers
        self._reducer = strategy.reduce.start(view) if isinstance(strategy.reduce, Keeping) else None
        self._editor = strategy.edit.start() if isinstance(strategy.edit, edit.Remembering) else None
        self._credited: Floats | None = None
        """How much of each update is in the last step, if that is not its weight."""
        self.stepper = strategy.local.steps.start() if strategy.local.steps is not None else None
        """The rule for each task's number of local steps, if the strategy has one."""
        self._secure, self._privacy = secure, privacy
        made = provenance(strategy.weigh)
        self._bound = made.arguments["bound"] if made is not None and made.make is bounded else None
        """The largest share of one client in a version, if there is a bound."""
        self._may_refuse = max_growth is not None or secure is not None or self._bound is not None
        self._may_be_nothing = self._shows_updates or strategy.account is not None or self._bound is not None
        width, dtype = (self._size, np.float32) if secure is None else (secure.words, np.uint64)
        self._rows = np.empty((strategy.trigger.needs, width), dtype)
        # Silences overflow warnings; entering it takes a tenth of the time of np.errstate.
        self._quiet = copy_context()
        self._quiet.run(np.seterr, over="ignore", invalid="ignore")
        self.stores = self._size > 0 or self._shows_updates
        """False for a model without parameters: its updates are only counted."""

    def store(self, delta: Vector, place: int) -> None:
        """Copies an update into row `place`: from now on no other code can change it."""
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
    ) -> tuple[Buffer, Floats, Parts | None, str]:
        """Weighs the stored updates and publishes the next version.

        `drafted` may say of more updates than `tasks` whether they count: then the others stay in the buffer.
        Returns the buffer, the weights, the parts (None if every update acts in this version alone), and a reason if
        the aggregation was refused: then all weights are 0.
        """
        held = self._move_behind(drafted) if drafted is not None and len(drafted) > len(tasks) else 0
        drafted = None if held else drafted
        rows = self._rows[:, : self._parameters]
        buffer = Buffer(tasks, staleness, reports, rows if self._shows_updates else None, drafted)
        weights, parts, refused = self._weigh(buffer), None, ""
        if self._privacy is not None:
            self._privacy.uses(buffer.clients, weights)  # refuses weights that the noise does not hide
        before = {name: part.state() for name, part in self._parts.items()} if self._may_refuse else {}
        self._credited = None
        late = isinstance(self._strategy.reduce, Keeping) and self._strategy.reduce.late
        if self._reducer is not None and not late:
            parts = self._parts_of(self._reducer, weights, buffer)
        if self._size:
            refused = self._publish(Buffer(tasks, staleness, reports, rows, drafted), weights)
        else:
            self._versions.publish(self._versions.newest)
        if self._reducer is not None and late:
            parts = self._parts_of(self._reducer, weights, buffer)
        if self._credited is not None:
            weights = self._credited
        if refused:
            for name, part in self._parts.items():
                part.restore(before[name])
            weights = np.zeros(len(buffer))
            weights.setflags(write=False)
            parts = None if parts is None else self._unchanged(parts.unit)
        if held and self.stores:
            self._rows[:held] = self._rows[len(tasks) : len(tasks) + held].copy()
        return buffer, weights, parts, refused

    def _move_behind(self, drafted: Sequence[bool]) -> int:
        """Moves the updates that are not drafted behind the others; returns how many there are."""
        if self.stores:
            self._rows[: len(drafted)] = self._rows[np.argsort(np.logical_not(drafted), kind="stable")]
        return len(drafted) - sum(drafted)

    def _unchanged(self, unit: float) -> Parts:
        """The parts of a version that is the last one again."""
        rule = self._strategy.reduce
        nobody = np.empty(0, np.int64), np.empty(0)
        return Parts(*nobody, 0.0 if isinstance(rule, Keeping) and rule.of_step else unit)

    def _parts_of(self, reducer: Reducer, weights: Floats, buffer: Buffer) -> Parts:
        with rule_errors("reduction", self._strategy.reduce):
            return reducer.parts(weights, buffer)

    def _publish(self, buffer: Buffer, weights: Floats) -> str:
        """Publishes the next version. If it is refused, publishes the current one again and returns the reason."""
        newest, limit = self._versions.newest, self._max_growth
        if self.stepper is not None:
            with rule_errors("rule of steps", self._strategy.local.steps):
                self.stepper.merged(buffer, self._view)
        if self._bound is not None and self._strategy.account is None and not weights.any():
            self._versions.publish(newest)
            count = len(set(buffer.clients.tolist()))
            return f"no weights are within the bound of {self._bound:g} per client; clients in the buffer: {count}"
        if self._secure is None or not weights.any():
            step = self._step(buffer, weights)
        else:
            found = self._secure.summed(buffer.tasks, self._rows[: len(buffer)], weights)
            if isinstance(found, str):
                self._versions.publish(newest)
                return found
            step, self._credited = found
            if self._privacy is not None:
                step = self._privacy.sum_of_clipped(step, self._credited)
        if self._privacy is not None:
            step = self._privacy.noised(step, self._view.version + 1)
        # Check the step too: Adam turns an enormous step into a small one, but would remember it for ever.
        refused = "" if limit is None else objection("the step", step, newest[: self._parameters], limit)
        if not refused:
            version, state = self._quiet.run(self._next, step, weights, buffer)
            refused = "" if limit is None else self._objection(version, len(buffer), limit)
        if refused:
            self._versions.publish(newest)
            return refused + self._suspected(buffer, weights)
        if not finite(version):
            raise DivergedError(
                f"version {self._view.version + 1} is not finite: the model diverged, smaller steps may help"
            )
        version.setflags(write=False)  # a new array without other references: published without a copy
        self._versions.publish(version)
        self._state = state
        return ""

    def _suspected(self, buffer: Buffer, weights: Floats) -> str:
        """Who contributed most to a step that is refused; nobody can know if updates are masked."""
        if self._secure is not None:
            return ""
        return f", most of it from {suspects(buffer.clients, weights, self._rows[: len(buffer)])}"

    def _objection(self, version: Vector, count: int, limit: float) -> str:
        """Why the next version is refused; empty if it is not."""
        newest, split = self._versions.newest, self._parameters
        refused = objection("the next model", version[:split], newest[:split], limit)
        if not refused and split < self._tail.start:
            where = self._statistics
            refused = swelling(version[where], self._rows[:count, where], newest[where], limit)
        return refused or ("" if finite(version[self._tail]) else "the vector for local training is not finite")

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
        # A rule that reads updates or accounts may return only zeros: AsyncFedED weighs an update of length 0 by 0, and
        # accounts may be empty. So may one with a bound per client, if there are too few clients.
        if total < 0 or (total == 0 and not self._may_be_nothing):
            raise StrategyError(
                f"the weighting {label_of(weigh)} returned {returned!r}: weights must add up to more than 0; "
                "to refuse an update, use a rule of `admit`"
            )
        weights.setflags(write=False)
        return weights

    def _next(self, step: Vector, weights: Floats, buffer: Buffer) -> tuple[Vector, tuple[object, ...]]:
        """The next version (parameters, statistics, the vector for local training), and the server rule's state."""
        version, state = self._applied(step, self._versions.newest[: self._parameters], buffer)
        if self._parameters < self._tail.start:
            version = np.concatenate([version, self._mixed(weights, len(buffer))])
        if self._shared is not None:
            version = np.concatenate([version, self._shared.next(self._rows[: len(buffer), self._tail], self._view.n)])
        return version, state

    def _mixed(self, weights: Floats, count: int) -> Vector:
        """The next version's statistics."""
        rule = self._strategy.averages
        assert rule is not None  # check_model refuses other models
        values, now = self._rows[:count, self._statistics], self._versions.newest[self._statistics]
        values.setflags(write=False)

        def average(shares: Floats, values: Matrix) -> Vector:
            found = rule(shares, values)
            _check_shape("reduce", rule, found, now.shape)
            return found

        with rule_errors("reduction", rule):
            return mixed(average, weights, values, now)

    def _step(self, buffer: Buffer, weights: Floats) -> Vector:
        """Edits and reduces the updates to the step that the server rule gets."""
        strategy, updates = self._strategy, buffer.updates
        change = self._editor or strategy.edit
        if change is not None:
            with rule_errors("edit", strategy.edit):
                updates = change(updates, buffer, self._view)
            _check_shape("edit", strategy.edit, updates, (len(buffer), self._parameters))
        try:
            step = self._reduced(weights, updates, buffer)
        except Exception as error:
            raise failure("reduction", strategy.reduce, error) from error
        _check_shape("reduce", strategy.reduce, step, (self._parameters,))
        return step

    def _applied(self, step: Vector, parameters: Vector, buffer: Buffer) -> tuple[Vector, tuple[object, ...]]:
        """The next version's parameters, and the server rule's next state."""
        # A rule may keep the step, but it may be a view of the buffer's rows, which the next updates overwrite.
        given_away = step.flags.owndata and step.flags.writeable
        step = np.array(step, np.float32, copy=None if given_away else True)
        rule, state = self._strategy.apply, self._state
        try:
            if rule.observe is not None:
                state = rule.observe(buffer.metadata, state)
            step, state = rule.update(step, state, parameters)
        except Exception as error:
            raise failure("server rule", rule, error) from error
        _check_shape("apply", rule, step, parameters.shape)
        return np.asarray(parameters + step, np.float32), state

    def _reduced(self, weights: Floats, updates: Matrix, buffer: Buffer) -> Vector:
        rule = self._strategy.reduce
        if self._reducer is not None:
            return self._reducer.reduce(weights, updates, buffer)
        assert not isinstance(rule, Keeping)
        if (credit := traits(rule).credit) is not None:
            self._credited = np.asarray(credit(weights, updates), np.float64)
        return rule(weights, updates)

    def _fresh_state(self) -> tuple[object, ...]:
        """The server rule's initial state."""
        return self._strategy.apply.init(self._versions.newest[: self._parameters], self._layout)

    @property
    def _parts(self) -> dict[str, Savable]:
        """The rules that have a state."""
        parts = {"reducer": self._reducer, "stepper": self.stepper, "shared": self._shared, "editor": self._editor}
        return {name: part for name, part in parts.items() if part is not None}

    def state(self) -> State:
        """The buffered updates and the state of the rules."""
        remembered = leaves(self._state)
        # Fail now rather than after a crash if the state could not be restored.
        self._refilled(self._fresh_state(), remembered)
        return {
            "rows": self._rows[: self._view.buffered].copy(),
            "remembered": {str(place): leaf for place, leaf in enumerate(remembered)},
            **{name: part.state() for name, part in self._parts.items()},
        }

    def restore(self, state: State) -> None:
        """Restores the buffered updates and the state of the rules."""
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
