"""Who is admitted: every arrival's form is checked first, then the strategy's own rule is asked."""

from fairlag.core.state import Savable
from fairlag.core.strategy import Strategy
from fairlag.core.types import NOTHING, CheckedUpdate, Dispatch, Update
from fairlag.core.vector import Layout
from fairlag.core.view import View
from fairlag.rules.admit import Remembering, no_negative_variance, well_formed
from fairlag.rules.rule import failure


class Admission:
    """Says of every arrival whether it may be merged."""

    def __init__(self, strategy: Strategy, layout: Layout, size: int, view: View) -> None:
        """For a model of that many numbers; the layout says which of them are statistics, which no rule sees."""
        self._strategy, self._size, self._view = strategy, size, view
        self._variances, self._parameters = layout.variances, layout.parameters.size
        self._has_statistics = layout.statistics > 0
        self._rule = strategy.admit
        self.memory: Savable | None = None
        """What the strategy's rule remembers, if it does."""
        if isinstance(strategy.admit, Remembering):
            self._rule = self.memory = strategy.admit.start()
        self.asks_nothing = self._rule is None and not self._variances
        """Is every well-formed update admitted?"""
        self.blank = object() if size else NOTHING
        """The one update that is known to be well formed without a look, if there is one."""

    def reason(self, update: Update, task: Dispatch) -> str | None:
        """None for an update that is admitted, else why it is refused."""
        known = update is self.blank or type(update) is CheckedUpdate
        reason = None if known else well_formed(update, self._size)
        if reason is None and self._variances:
            reason = no_negative_variance(update, self._variances)
        if reason is not None or self._rule is None:
            return reason
        seen = update._replace(delta=update.delta[: self._parameters]) if self._has_statistics else update
        try:
            return self._rule(seen, task, self._view)
        except Exception as error:
            raise failure("admission rule", self._strategy.admit, error) from error
