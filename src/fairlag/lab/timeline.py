"""Builds the server of a simulated run, and the timeline that sends it the events of its fleet."""

from typing import Protocol

from fairlag.core.secure import SecureSum
from fairlag.core.server import Server
from fairlag.core.state import Savable
from fairlag.core.strategy import Strategy
from fairlag.core.types import Stop
from fairlag.core.view import Reference
from fairlag.execute import Learning
from fairlag.lab.evaluations import Evaluations
from fairlag.lab.experiment import Experiment
from fairlag.lab.privacy import simulated
from fairlag.lab.resources import Setting
from fairlag.lab.store import Store
from fairlag.runtime.threads import WallClockSimulation
from fairlag.runtime.virtual import Simulation


class Timeline(Savable, Protocol):
    """The events of a fleet and its server."""

    def proceed(self, events: int) -> Stop | None:
        """Handles about this many more events; returns why the run is over, if it is."""


def simulated_server(
    experiment: Experiment,
    setting: Setting,
    strategy: Strategy,
    store: Store,
    evaluations: Evaluations,
    reference: Reference | None = None,
    secure: SecureSum | None = None,
) -> Server:
    """A server for the fleet of an experiment, which records everything in the store."""
    return Server(
        strategy,
        clients=experiment.population,
        parameters=setting.parameters,
        layout=setting.layout,
        seed=setting.seed,
        aggregations=experiment.aggregations,
        until_time=experiment.until_time,
        examples=setting.visible if setting.placement is not None else None,
        most_examples=setting.examples if setting.placement is not None else None,
        group_of=experiment.group_of,
        reference=reference,
        secure=secure,
        privacy=simulated(experiment.privacy, strategy, setting.seed),
        record=store.record,
        on_version=evaluations.offer,
    )


def wall_clock(
    server: Server, experiment: Experiment, setting: Setting, executor: Learning | None
) -> WallClockSimulation:
    """A simulation in real time, at the experiment's speed; closing it ends its threads."""
    return WallClockSimulation(server, experiment.fleet(setting.seed), executor, speed=experiment.speed or 1.0)


def virtual_time(server: Server, experiment: Experiment, setting: Setting, executor: Learning | None) -> Timeline:
    """A simulation event by event; or by compiled loops, if these train the tasks here and implement all the rest."""
    fleet = experiment.fleet(setting.seed)
    simulation = Simulation(server, fleet, executor)
    learner = None if executor is None else executor.learner
    if learner is None or learner.trainer is None:
        return simulation
    from fairlag.runtime.compiled.paged import PagedSimulation, known

    spec = known(server.strategy, fleet, server.versions.newest.size)
    if spec is None:
        return simulation
    until = experiment.aggregations, experiment.until_time
    return PagedSimulation(
        spec, simulation, server, fleet, learner, seed=setting.seed, until=until, examples=setting.examples
    )
