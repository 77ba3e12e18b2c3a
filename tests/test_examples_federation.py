"""The example's federation refuses what cannot work in one sentence, before it makes or starts anything."""

import socket
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fairlag.errors import InputError
from fairlag.lab.experiment import Experiment

HOME = Path(__file__).parent.parent / "examples" / "flower"
sys.path.append(str(HOME))

from digits_fleet.task import Net, examples, fleet, misbehave  # noqa: E402
from federation import LOOPBACK, Federation  # noqa: E402


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        (("fast",), "the node is 'fast'; it must be a group and a partition from 0 to 3, like fast:0"),
        (("fast:x",), "the node is 'fast:x'"),
        (("fast:4",), "the node is 'fast:4'"),
        (("fast:0", "fast:0"), "each may be given only once"),
    ],
)
def test_nodes_that_the_fleet_has_not_are_refused(nodes: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        Federation(tmp_path / "federation", nodes)
    assert sentence in str(caught.value) and not (tmp_path / "federation").exists()


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as held:
        port = held.getsockname()[1]
        with pytest.raises(InputError, match=f"cannot use port {port}: .*Give another first port with --port"):
            Federation(tmp_path / "federation", ("fast:0",), port - 1)
    assert not (tmp_path / "federation").exists()


def test_a_folder_has_one_federation_at_a_time(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as held:
        port = held.getsockname()[1]
    first = Federation(tmp_path / "federation", (), port)
    with pytest.raises(InputError, match=r"is already running in .*: give another --folder"):
        Federation(tmp_path / "federation", (), port)
    first.close()
    Federation(tmp_path / "federation", (), port).close()


def test_an_unknown_fleet_is_said_with_those_that_are_known() -> None:
    with pytest.raises(InputError, match=r"there is no fleet 'nothing' in .*, known are: attacked, four, paper"):
        fleet("nothing")


def attacked(behaviour: str) -> Experiment:
    """The fleet of four, whose slow clients attack."""
    four = fleet("four")
    fast, slow = four.clients
    return four.checked(clients=(fast, slow.model_copy(update={"behaviour": behaviour})))


def sent(experiment: Experiment, client: int) -> list[float]:
    """The update that a client sends if it has trained an update of 1 everywhere."""
    model = Net()
    received = parameters_to_vector(model.parameters()).detach().clone()
    vector_to_parameters(received + 1, model.parameters())
    misbehave(experiment, client, model, received, key=0)
    update = parameters_to_vector(model.parameters()).detach() - received
    return sorted(set(update.round(decimals=3).tolist()))


def test_a_client_of_the_example_attacks_as_its_group_says() -> None:
    assert sent(attacked("sign_flip(10)"), 0) == [1.0]
    assert sent(attacked("sign_flip(10)"), 2) == [-10.0]
    with pytest.raises(InputError, match="client 2 has a behaviour that needs more than its own update"):
        sent(attacked("lie(2)"), 2)


def test_a_client_of_the_example_trains_on_wrong_labels_if_its_group_flips_them() -> None:
    for client, wrong in ((0, False), (2, True)):
        _, honest = examples(fleet("four"), client)
        _, told = examples(attacked("label_flip"), client)
        assert torch.equal(told, 9 - honest if wrong else honest)
