"""Admission rules that refuse suspicious updates: by how much a client's updates change, or by a trusted step."""

import math
from collections import deque

import numpy as np

from fairlag.core.buffer import Buffer
from fairlag.core.rows import Rows
from fairlag.core.state import State, rows, table, take
from fairlag.core.types import Dispatch, Update
from fairlag.core.vector import Matrix, Vector, length
from fairlag.core.view import View
from fairlag.errors import StrategyError
from fairlag.rules import check
from fairlag.rules.admit import Admit, Remembering
from fairlag.rules.rule import factory, reads_reference, reads_updates


@factory
def lipschitz(f: int) -> Admit:
    """Kardam's filters: refuses an update that changed more than the model did, and a client that sends too often.

    K_i = ‖Δ_i − Δ_i'‖ / ‖w_u − w_u'‖, with Δ_i' and w_u' the client's previous update and the version that it was
    trained from. Admitted if K_i is at most the (n − f)/n quantile of all clients' last ones, its own included, and if
    the client made at most f of the last 2f admitted updates, this one included. A first update has no K_i and is
    admitted. One from the version of the client's previous update has none either: it is judged by the client's last
    one, so a refused client stays refused until it gets a new version. With f = 0 everything is admitted.

    >>> lipschitz(2)._traits.label
    'lipschitz(2)'
    """
    check.whole("the number of attackers", f, 0, "client")
    return reads_updates(Remembering(lambda view: _Lipschitz(f, view)))


class _Lipschitz:
    def __init__(self, f: int, view: View) -> None:
        self._f = f
        self._size = view.parameters(view.version).size if f else 0
        what = "the last update and its version"
        self._last = Rows(2 * self._size, clients=len(view.update_counts), what=what)
        """Per client: the update, then the parameters that it was trained from."""
        self._constants: dict[int, float] = {}
        self._admitted: deque[int] = deque(maxlen=max(2 * f - 1, 0))
        """The senders of the last admitted updates."""

    def __call__(self, update: Update, task: Dispatch, view: View) -> str | None:
        if not self._f:
            return None
        reason = self._steep(update.delta, task, view)
        if reason is None and self._admitted.count(task.client) >= self._f:
            reason = f"more than {self._f} of the last {2 * self._f} updates are from its client"
        if reason is None:
            self._admitted.append(task.client)
        return reason

    def _steep(self, delta: Vector, task: Dispatch, view: View) -> str | None:
        """Judges how much a client's update differs from its last one, and remembers it."""
        client, start, size = task.client, view.parameters(task.version), self._size
        before = self._last.of(client)
        moved = 0.0 if before is None else length(start - before[size:])
        if before is not None and moved:
            self._constants[client] = length(delta - before[:size]) / moved
        self._last.keep(client, np.concatenate([delta, start]))
        if client not in self._constants:
            return None
        known = sorted(self._constants.values())
        place = math.ceil(len(known) * (view.n - self._f) / view.n) - 1
        return None if self._constants[client] <= known[max(place, 0)] else "it changed more than the model did"

    def state(self) -> State:
        return {
            "last": self._last.state(),
            "constants": table(self._constants.items(), client=int, constant=float),
            "admitted": np.array(self._admitted, np.int64),
        }

    def restore(self, state: State) -> None:
        self._last.restore(take(state, "last", dict))
        self._constants = dict(rows(take(state, "constants", dict), "client", "constant"))
        self._admitted.clear()
        self._admitted.extend(take(state, "admitted", np.ndarray).tolist())


@factory
def near_reference(factor: float) -> Admit:
    """AFLGuard: admits an update if ‖Δ − Δ_s‖ ≤ factor · ‖Δ_s‖, Δ_s the server's step on its own trusted examples.

    >>> near_reference(1.5)._traits.reference
    True
    """
    if not factor > 0:
        raise StrategyError(f"the factor on the server's own step is {factor}, it must be positive")

    @reads_reference
    @reads_updates
    def admit(update: Update, task: Dispatch, view: View) -> str | None:
        if factor == math.inf or not update.delta.size:
            return None
        step = view.reference
        near = length(update.delta - step) <= factor * length(step)
        return None if near else "far from the server's own step"

    return admit


@factory
def along_reference(*, gamma: float, rho: float, eps: float) -> Admit:
    """Zeno++: admits an update if γ⟨Δ_s, Δ̃⟩ − ρ‖Δ̃‖² ≥ −γε, with Δ̃ = Δ ‖Δ_s‖/‖Δ‖.

    Δ_s is the server's step on its own trusted examples. `edit` of the same strategy is `as_long_as_reference`.

    >>> along_reference(gamma=1.0, rho=0.0, eps=0.0)._traits.reference
    True
    """
    check.positive("gamma", gamma)
    check.not_negative("rho", rho)
    if not eps >= 0:
        raise StrategyError(f"eps is {eps}, it must be a number of at least 0")

    @reads_reference
    @reads_updates
    def admit(update: Update, task: Dispatch, view: View) -> str | None:
        size = length(update.delta)
        if eps == math.inf or not size:
            return None
        step = view.reference
        long = length(step)
        along = float(np.dot(step.astype(np.float64), update.delta)) * long / size
        return None if gamma * along - rho * long**2 >= -gamma * eps else "against the server's own step"

    return admit


@reads_reference
@reads_updates
def as_long_as_reference(updates: Matrix, buffer: Buffer, view: View) -> Matrix:
    """Zeno++'s Δ̃_j = Δ_j ‖Δ_s‖/‖Δ_j‖: every update as long as the server's own step.

    >>> as_long_as_reference._traits.reference
    True
    """
    lengths = np.array([length(row) for row in updates])
    factors = length(view.reference) / np.where(lengths > 0, lengths, 1.0)
    edited: Matrix = updates * factors.astype(np.float32)[:, None]
    return edited
