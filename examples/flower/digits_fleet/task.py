"""What the clients of this app share: the model, and what the experiment file says about each of them."""

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import fairlag
from fairlag.errors import InputError
from fairlag.lab.experiment import Experiment
from fairlag.lab.resources import Resources
from fairlag.learn.behave import Known, flipped


class Net(nn.Sequential):
    """The same model as the `mlp` in the experiment file."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def fleet(name: object) -> Experiment:
    """The experiment file of that name."""
    here = Path(__file__).parent
    files = {file.stem: file for file in sorted(here.glob("*.toml"))}
    if name not in files:
        raise InputError(f"there is no fleet {name!r} in {here}, known are: {', '.join(files)}")
    return fairlag.load(files[str(name)])


def examples(experiment: Experiment, client: int, file: str = "") -> tuple[torch.Tensor, torch.Tensor]:
    """The training examples of a client: from its own file, or else as in a simulation.

    In both cases no client holds the server's test examples.
    """
    if file:
        held = np.load(file)
        inputs, labels = held["inputs"], held["labels"]
    else:
        inputs, labels = Resources(experiment).held(client)
    behaviour = Resources(experiment).attackers.get(client)
    if behaviour is not None and behaviour.flips_labels:
        labels = flipped(labels, classes=10)
    return torch.from_numpy(inputs), torch.from_numpy(labels)


def misbehave(experiment: Experiment, client: int, model: nn.Module, received: torch.Tensor, key: int) -> None:
    """Replaces what an attacker of the experiment file has trained with what it sends; honest clients stay honest."""
    behaviour = Resources(experiment).attackers.get(client)
    if behaviour is None:
        return
    if behaviour.window or behaviour.remembers:
        raise InputError(f"client {client} has a behaviour that needs more than its own update: simulate it instead")
    update = (parameters_to_vector(model.parameters()).detach() - received).numpy()
    sent = behaviour.sent(Known(update, received.numpy(), None, (), key))
    vector_to_parameters(received + torch.from_numpy(sent), model.parameters())
