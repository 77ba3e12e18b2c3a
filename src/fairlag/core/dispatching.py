"""Dispatching tasks: selection picks the clients, the rules of local training say what a task asks for."""

from fairlag.core.ledger import Ledger
from fairlag.core.merger import Merger
from fairlag.core.strategy import Strategy
from fairlag.core.types import Command, Dispatch
from fairlag.core.versions import Versions
from fairlag.core.view import View
from fairlag.rules.rule import failure
from fairlag.rules.select import Selector


class Dispatcher:
    """Numbers the tasks of a run and dispatches them."""

    def __init__(
        self, strategy: Strategy, ledger: Ledger, versions: Versions, selector: Selector, view: View, merger: Merger
    ) -> None:
        self.next_task = 0
        self._strategy, self._ledger, self._versions, self._view = strategy, ledger, versions, view
        self._selector, self._merger = selector, merger
        local, select = strategy.local, strategy.select
        self._usual = local.steps is None and local.pace is None and not (select.lag or select.plans)
        """True if every task is the newest version with the client's own steps and pace."""

    def dispatch(self, commands: list[Command]) -> None:
        """Adds one task per client that selection picks now."""
        try:
            picked = self._selector.pick()
        except Exception as error:
            raise failure("selection", self._strategy.select, error) from error
        if not picked:
            return
        number, ledger = self.next_task, self._ledger
        version = ledger.version
        if self._usual:
            for client in picked:
                commands.append(ledger.dispatch(number, client, version))
                number += 1
            self._versions.hold(version, len(picked))
        else:
            for client in picked:
                commands.append(self._order(number, client))
                number += 1
        self.next_task = number

    def _order(self, number: int, client: int) -> Dispatch:
        """A task with everything that selection and the rules of local training may ask for."""
        older = self._selector.version(client)
        version = self._ledger.version if older is None else older
        self._versions.hold(version, 1)
        steps, pace = self._strategy.local.asked(self._view, client, self._merger.stepper)
        if self._strategy.select.plans:
            steps = self._selector.steps(client)
        return self._ledger.dispatch(number, client, version, steps, pace)
