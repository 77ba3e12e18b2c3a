"""A masked ClientApp: what leaves the node, whose keeper can open it, and what it refuses to do for a server."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fairlag.core.types import Dispatch, Report, Update
from fairlag.core.vector import Layout, Vector
from fairlag.errors import InputError
from fairlag.flower import introduced, masked
from fairlag.privacy.fixed import quantise
from fairlag.privacy.secure.keys import keeper_key, make_keys
from fairlag.privacy.secure.seal import opened
from fairlag.privacy.secure.stream import add_keystreams
from fairlag.privacy.secure.sums import masked as masked_row
from fairlag.runtime.flower.masked_wire import MaskedWire
from fairlag.runtime.flower.wire import GREETING, Told, Wire
from tests.support.flower_deploy import values_of
from tests.support.flower_grid import failing, replied, trained
from tests.support.masked_fleet import context, keys, masks

LAYOUT = Layout(("weight", "bias"), ((2, 2), (2,)))
PARAMETERS = np.arange(6, dtype=np.float32)
TASK = Dispatch(task=17, client=1, version=3, ordinal=0, time=0.0)
FIXED = {"batches": np.array(4)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return keys(tmp_path / "keys", clients=2)


def wire(clip: float | None = None) -> MaskedWire:
    return MaskedWire(LAYOUT, FIXED, run="digits", clip=clip)


def asked(**more: Any) -> Message:
    return wire(more.pop("clip", None)).task(TASK, PARAMETERS, more, 5, None)


def believed(told: Told) -> Report:
    return Report(told.examples)


def update_of(reply: Message) -> Update:
    update = wire().update(reply, PARAMETERS, believed)
    assert isinstance(update, Update), update
    return update


def unmasked(reply: Message, key: X25519PrivateKey) -> Vector | None:
    """What a server that has a keeper's private key could read; None if its key does not open the seal."""
    row: Any = update_of(reply).delta
    hidden = masked_row(row)
    seed = opened(hidden.sealed, "digits", key)
    if seed is None:
        return None
    mask = np.zeros(LAYOUT.size, np.uint64)
    add_keystreams(mask, [seed], [1])
    numbers: Vector = ((hidden.vector - mask).view(np.int64) * 2.0**-30).astype(np.float32)
    return numbers


def test_the_change_of_the_arrays_is_masked_for_the_nodes_own_keeper(folder: Path) -> None:
    reply = masks(folder, 1, trained)(asked())
    assert set(values_of(reply)) == {"masked", "seal"}
    assert reply.content.metric_records["metrics"]["num-examples"] == 7
    assert update_of(reply).report.examples == 7
    change = unmasked(reply, keeper_key(folder / "keeper.key"))
    assert change is not None and change.tolist() == [0.5] * 6
    sent = values_of(reply)["masked"].tobytes()
    assert quantise(np.full(6, 0.5, np.float32)).tobytes()[:16] not in sent


def test_a_server_that_asks_for_a_tiny_clip_knows_the_mask(folder: Path) -> None:
    """The limit that docs/keeper.md states: with all clients of a sum but one, the last one's update is in the open."""
    change = unmasked(masks(folder, 1, trained)(asked(clip=1e-12)), keeper_key(folder / "keeper.key"))
    assert change is not None and not change.any()


@pytest.mark.parametrize("clip", [0.0, -1.0])
def test_a_clip_that_would_turn_an_update_is_refused(folder: Path, clip: float) -> None:
    with pytest.raises(InputError, match=f"clip is {clip:g}, the length of an update must be bounded by more than 0"):
        masks(folder, 1, trained)(asked(clip=clip))


def test_the_seal_names_the_task_and_version(folder: Path) -> None:
    row: Any = update_of(masks(folder, 1, trained)(asked())).delta
    sealed = masked_row(row).sealed
    assert (sealed.task, sealed.version) == (17, 3)


def test_two_masks_are_never_the_same(folder: Path) -> None:
    answer = masks(folder, 1, trained)
    one, other = (values_of(answer(asked()))["masked"] for _ in range(2))
    assert not np.any(one == other)


def test_the_keeper_is_the_nodes_own_whatever_the_server_says(folder: Path, tmp_path: Path) -> None:
    """The server makes itself a keeper: in the task's configuration, and in that of the run."""
    make_keys(tmp_path / "false", "keeper")
    false = str(tmp_path / "false" / "keeper.pub")
    words = {"keeper": false, "client-key": str(tmp_path / "false" / "keeper.key"), "secure-keeper": false}
    app = ClientApp()
    app.train()(lambda message, context: trained(message))
    mine = context(folder, 1)
    told = Context(1, 1, mine.node_config, RecordDict(), {"keeper": false, "client-key": false})
    reply = masked(app)(asked(**words), told)
    assert unmasked(reply, keeper_key(tmp_path / "false" / "keeper.key")) is None
    assert unmasked(reply, keeper_key(folder / "keeper.key")) is not None


def test_a_server_that_asks_for_no_mask_gets_nothing(folder: Path) -> None:
    plain = Wire(LAYOUT, FIXED).task(TASK, PARAMETERS, {}, 5, None)
    calls = []

    def train(message: Message) -> Message:
        calls.append(message)
        return trained(message)

    with pytest.raises(InputError, match=r"the server does not ask for a masked update .* has no secure-run"):
        masks(folder, 1, train)(plain)
    assert not calls


def test_a_node_without_keys_says_what_is_missing(folder: Path) -> None:
    app = ClientApp()
    app.train()(lambda message, context: trained(message))
    nobody = Context(1, 1, {"partition-id": 1}, RecordDict(), {})
    with pytest.raises(InputError, match="the configuration of this node has no keeper: give it as --node-config"):
        masked(app)(asked(), nobody)
    # Only a node's own configuration decides whether it may send in the clear.
    assert set(values_of(masked(app, required=False)(asked(), nobody))) == {"weight", "bias", "batches"}
    assert set(values_of(masked(app, required=False)(asked(), context(folder, 1)))) == {"masked", "seal"}


def test_the_length_is_clipped_if_the_server_asks_for_it(folder: Path) -> None:
    change = unmasked(masks(folder, 1, trained)(asked(clip=0.1)), keeper_key(folder / "keeper.key"))
    assert change is not None
    assert np.linalg.norm(change) == pytest.approx(0.1, rel=1e-5) and np.linalg.norm(change) <= 0.1
    assert np.ptp(change) < 1e-8


def test_an_app_that_changes_the_message_in_place_is_masked_all_the_same(folder: Path) -> None:
    def careless(message: Message) -> Message:
        reply = trained(message)
        message.content["arrays"] = reply.content["arrays"]
        return reply

    change = unmasked(masks(folder, 1, careless)(asked()), keeper_key(folder / "keeper.key"))
    assert change is not None and change.tolist() == [0.5] * 6


def test_errors_and_other_messages_pass(folder: Path) -> None:
    assert masks(folder, 1, failing)(asked()).has_error()
    app = masked(introduced(ClientApp()))
    greeting = Message(RecordDict({"config": ConfigRecord()}), dst_node_id=5, message_type=GREETING)
    assert app(greeting, context(folder, 1)).content.config_records["config"]["partition-id"] == 1
    # The addition works in either order.
    app = introduced(masked(ClientApp()))
    assert app(greeting, context(folder, 1)).content.config_records["config"]["partition-id"] == 1


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"weight": np.zeros((2, 2), np.float32)}, "there is no array 'bias', there are: weight"),
        ({"weight": np.full((2, 2), np.nan, np.float32), "bias": np.zeros(2, np.float32)}, "it must be finite"),
    ],
)
def test_what_cannot_be_masked_is_not_sent(folder: Path, arrays: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        masks(folder, 1, lambda message: replied(message, arrays))(asked())


def forged(**arrays: Any) -> Message:
    return replied(asked(), arrays)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (forged(masked=np.zeros(6, np.uint64)), "it is not masked"),
        (forged(masked=np.zeros(6, np.uint64), seal=np.zeros(191, np.uint8)), "different shape"),
        (forged(masked=np.zeros(5, np.uint64), seal=np.zeros(192, np.uint8)), "different shape"),
        (forged(masked=np.zeros(6, np.float64), seal=np.zeros(192, np.uint8)), "an array is not uint64"),
        (forged(weight=np.zeros((2, 2), np.float32), bias=np.zeros(2, np.float32)), "it is not masked"),
    ],
)
def test_replies_that_are_not_masked_updates_are_refused(reply: Message, reason: str) -> None:
    found = wire().update(reply, PARAMETERS, believed)
    assert isinstance(found, str) and reason in found
