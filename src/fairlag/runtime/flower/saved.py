"""The saved state of a server on a real fleet, without versions that only running tasks need: a restart loses these."""

import numpy as np

from fairlag.core.server import Server
from fairlag.core.state import State, take


def saved(server: Server) -> State:
    """The state of a server, with the parameters of the newest version and of those that may be dispatched again.

    Each running task may hold a different old version, and a checkpoint per aggregation would contain all of them.
    """
    state = server.state()
    versions = take(state, "versions", dict)
    first = server.view.version - server.strategy.select.lag
    needed = {name: vector for name, vector in take(versions, "parameters", dict).items() if int(name) >= first}
    return {**state, "versions": {**versions, "parameters": needed}}


def completed(state: State) -> State:
    """The same state with placeholders for the missing versions, which are never read."""
    versions = take(state, "versions", dict)
    parameters = take(versions, "parameters", dict)
    if not parameters:  # a model without parameters
        return state
    newest = parameters[max(parameters, key=int)]
    numbers = take(take(versions, "holders", dict), "version", np.ndarray).tolist()
    everything = {**{str(number): newest for number in numbers}, **parameters}
    return {**state, "versions": {**versions, "parameters": everything}}
