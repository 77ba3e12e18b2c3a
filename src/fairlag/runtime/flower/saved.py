"""What is saved of a server on a real fleet: without the versions that only tasks need which a restart loses."""

import numpy as np

from fairlag.core.server import Server
from fairlag.core.state import State, take


def saved(server: Server) -> State:
    """The state of a server, with the parameters of the newest version and of those that may be handed out again.

    A big model has as many old versions as tasks that are running: a checkpoint of each aggregation would hold all.
    """
    state = server.state()
    versions = take(state, "versions", dict)
    first = server.view.version - server.strategy.select.lag
    needed = {name: vector for name, vector in take(versions, "parameters", dict).items() if int(name) >= first}
    return {**state, "versions": {**versions, "parameters": needed}}


def completed(state: State) -> State:
    """The same state with something in the place of the versions that are missing: nobody will look at them."""
    versions = take(state, "versions", dict)
    parameters = take(versions, "parameters", dict)
    if not parameters:  # a model without any
        return state
    newest = parameters[max(parameters, key=int)]
    numbers = take(take(versions, "holders", dict), "version", np.ndarray).tolist()
    everything = {**{str(number): newest for number in numbers}, **parameters}
    return {**state, "versions": {**versions, "parameters": everything}}
