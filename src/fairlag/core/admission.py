"""Admission: first checks that an update is well formed, then asks the strategy's own rule."""

import numpy as np

from fairlag.core.mechanism import Mechanism
from fairlag.core.secure import SecureSum
from fairlag.core.state import Savable
from fairlag.core.strategy import Strategy
from fairlag.core.types import NOTHING, CheckedUpdate, Dispatch, Integers, Report, Update
from fairlag.core.vector import Layout
from fairlag.core.view import View
from fairlag.rules.admit import NOT_FINITE, Remembering, no_negative_variance, well_formed
from fairlag.rules.rule import failure


class Admission:
    """Decides for each update whether it may be merged."""

    def __init__(
        self,
        strategy: Strategy,
        layout: Layout,
        size: int,
        view: View,
        most_examples: Integers | None = None,
        *,
        secure: SecureSum | None = None,
        privacy: Mechanism | None = None,
    ) -> None:
        """`size` counts an update's numbers; rules see only those that the layout says are parameters.

        `most_examples` is how many examples each client can have; a report of more counts as that many.
        With `secure`, updates are masked, and none is admitted unseen: one in the clear is refused.
        With `privacy`, updates that are too long are shortened, unless they are masked: then only clients can do it.
        """
        self._secure, self._privacy = secure, privacy
        self._most_examples = most_examples
        self._strategy, self._size, self._view = strategy, size, view
        self._variances, self._parameters = layout.variances, layout.parameters.size
        self._hides = size > self._parameters and secure is None
        self._rule = strategy.admit
        self.memory: Savable | None = None
        """The memory of the strategy's rule, if it has one."""
        if isinstance(strategy.admit, Remembering):
            self._rule = self.memory = strategy.admit.start(view)
        checks = bool(self._variances) or secure is not None or privacy is not None
        self.asks_nothing = self._rule is None and not checks
        """True if every well-formed update is admitted."""
        self.blank = object() if size else NOTHING
        """The update that is well formed by definition, if the model has no parameters."""

    def judged(self, update: Update, task: Dispatch) -> tuple[str | None, Update]:
        """Why the update is refused, None if it is admitted; and the update with what is believed of its report."""
        known = update is self.blank or type(update) is CheckedUpdate
        if self._secure is not None:
            reason = _masked(self._secure, update, task)
        else:
            reason = None if known else well_formed(update, self._size)
        if reason is None and self._variances:
            reason = no_negative_variance(update, self._variances)
        if reason is None:
            update = self._bounded(update, task.client)
            if self._privacy is not None:
                update = self._private(self._privacy, update, task.client)
        if reason is not None or self._rule is None:
            return reason, update
        seen = update._replace(delta=update.delta[: self._parameters]) if self._hides else update
        try:
            return self._rule(seen, task, self._view), update
        except Exception as error:
            raise failure("admission rule", self._strategy.admit, error) from error

    def _private(self, privacy: Mechanism, update: Update, client: int) -> Update:
        """The update as noise can hide it: not too long, and without a report, which follows from its examples."""
        if privacy.noise:
            update = update._replace(report=Report(self._view.examples.item(client)))
        return update if self._secure is not None or not self._size else privacy.clipped(update)

    def _bounded(self, update: Update, client: int) -> Update:
        most = self._most_examples
        if most is None or client >= len(most) or update.report.examples <= most[client]:
            return update
        return update._replace(report=update.report._replace(examples=max(1, int(most[client]))))


def _masked(secure: SecureSum, update: Update, task: Dispatch) -> str | None:
    """What can be checked of a masked update: None if it is well formed, else the reason."""
    if update.delta.shape == (0,):
        return NOT_FINITE
    return well_formed(update, secure.words, np.uint64) or secure.objection(update.delta.view(np.uint64), task)
