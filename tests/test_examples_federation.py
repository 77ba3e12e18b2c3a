"""The example's federation refuses what cannot work in one sentence, before it makes or starts anything."""

import socket
import sys
from pathlib import Path

import pytest

from fairlag.errors import InputError

HOME = Path(__file__).parent.parent / "examples" / "flower"
sys.path.append(str(HOME))

from digits_fleet.task import fleet  # noqa: E402
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
    with pytest.raises(InputError, match=r"there is no fleet 'nothing' in .*, known are: four, paper"):
        fleet("nothing")
