"""Secure aggregation in a simulated run: its clients mask what they send, and its server gets what adds it up."""

from importlib import import_module

import numpy as np

from fairlag.core.mechanism import Mechanism
from fairlag.core.secure import SecureSum, masked_update
from fairlag.core.types import Dispatch, Update
from fairlag.core.vector import finite
from fairlag.execute import Learning
from fairlag.lab.experiment import Experiment
from fairlag.lab.resources import Setting


def hidden(
    experiment: Experiment, setting: Setting, executor: Learning | None
) -> tuple[Learning | None, SecureSum | None]:
    """The executor with clients that mask their updates, and the sum for the server; None without `secure = true`."""
    privacy = experiment.privacy
    if executor is None or privacy is None or not privacy.secure:
        return executor, None
    from fairlag.execute.sending import Sending
    from fairlag.privacy.secure.simulated import SimulatedClients

    size = setting.layout.size
    mechanism = None if privacy.clip is None else Mechanism(privacy.clip)
    clients = SimulatedClients(seed=setting.seed, size=size, bound=privacy.bound, masks=privacy.masks)

    def sent(update: Update, task: Dispatch) -> Update:
        if not finite(update.delta):  # there is nothing to mask, and the server is told so
            return masked_update(np.empty(0, np.uint64), update.report)
        if mechanism is not None:  # the server cannot do it
            update = mechanism.clipped(update)
        return masked_update(clients.sent(update.delta, task), update.report)

    return Sending(executor, sent), clients.sum


def check_extra(experiment: Experiment) -> None:
    """Refuses secure aggregation without the extra that it needs."""
    if experiment.privacy is not None and experiment.privacy.secure:
        import_module("fairlag.privacy.secure")
