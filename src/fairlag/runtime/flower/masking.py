"""The addition to a Flower ClientApp that masks its updates: they leave the node only in a form that hides them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MessageType
from flwr.clientapp import ClientApp

from fairlag.core.mechanism import Mechanism
from fairlag.core.types import Update
from fairlag.core.vector import Vector
from fairlag.errors import InputError
from fairlag.privacy.secure.client import mask
from fairlag.privacy.secure.keys import client_key, keeper_public
from fairlag.privacy.secure.seal import Origin
from fairlag.runtime.flower.masked_wire import CLIP, MASKED, NAMES, RUN, SEAL, TASK
from fairlag.runtime.flower.wire import ARRAYS, CONFIG, unpacked

KEEPER, KEY = "keeper", "client-key"
"""The keys of a node's configuration: its copy of keeper.pub, and its own client.key."""


def masked(
    app: ClientApp, *, keeper: str | Path | None = None, key: str | Path | None = None, required: bool = True
) -> ClientApp:
    """The same app, whose trained arrays leave the node masked: the server learns only sums of many clients' updates.

    `keeper` is the file keeper.pub of the mask keeper, and `key` the file client.key of this client. By default the
    node's own configuration names them, as `keeper` and `client-key`: Flower sends an app's code to its nodes, so what
    the code says, the server could say. Nothing of it is ever read from a message. A task that does not ask for a
    masked update fails, because the update would be sent in the clear. Metrics are sent as they are.
    If it is not `required`, a node whose own configuration names no keeper sends its updates in the clear.

    >>> from fairlag.flower import introduced
    >>> app = masked(introduced(ClientApp()))
    >>> @app.train()
    ... def train(message, context): ...
    """
    return _MaskedApp(app, {KEEPER: keeper, KEY: key}, required)


class _MaskedApp(ClientApp):
    """Passes everything on to another app, and masks the replies of its train functions."""

    def __init__(self, inner: ClientApp, files: Mapping[str, str | Path | None], required: bool) -> None:
        super().__init__()
        self._inner, self._files, self._required = inner, files, required
        self.train, self.evaluate = inner.train, inner.evaluate  # type: ignore[method-assign]
        self.query, self.lifespan = inner.query, inner.lifespan  # type: ignore[method-assign]

    def __call__(self, message: Message, context: Context) -> Message:
        trains = message.metadata.message_type.partition(".")[0] == MessageType.TRAIN
        if not trains or not (self._required or self._files[KEEPER] or KEEPER in context.node_config):
            return self._inner(message, context)
        keeper, signer = keeper_public(self._file(KEEPER, context)), client_key(self._file(KEY, context))
        asked: dict[str, Any] = dict(message.content.config_records.get(CONFIG, {}))
        missing = [name for name in (RUN, TASK, NAMES) if name not in asked]
        if missing:
            raise InputError(
                f"the server does not ask for a masked update (its configuration has no {missing[0]}), and this client "
                "sends no other: give fairlag.deploy its `secure`"
            )
        # Copied before training, because an app may change the arrays of a message in place.
        before = _vector(message.content.array_records[ARRAYS], asked[NAMES])
        reply = self._inner(message, context)
        if reply.has_error():
            return reply
        if len(reply.content.array_records) != 1:
            raise InputError(f"the reply has {len(reply.content.array_records)} records of arrays, it must have one")
        (name,) = reply.content.array_records
        change = _vector(reply.content.array_records[name], asked[NAMES]) - before
        if CLIP in asked:
            change = Mechanism(float(asked[CLIP])).clipped(Update(change)).delta
        hidden = mask(change, Origin(asked[RUN], asked[TASK], asked["version"]), keeper, signer)
        seal = np.frombuffer(bytes(hidden.sealed), np.uint8)
        reply.content[name] = ArrayRecord({MASKED: Array(hidden.vector), SEAL: Array(seal)})
        return reply

    def _file(self, name: str, context: Context) -> Path:
        file = self._files[name] or context.node_config.get(name)
        if file is None:
            raise InputError(
                f"the configuration of this node has no {name}: give it as --node-config '{name}=\"FILE\"'"
            )
        return Path(str(file))


def _vector(arrays: ArrayRecord, names: list[str]) -> Vector:
    """The arrays with these names as one new vector, in this order."""
    missing = [name for name in names if name not in arrays]
    if missing:
        raise InputError(f"there is no array {missing[0]!r}, there are: {', '.join(arrays)}")
    parts = [np.asarray(unpacked(arrays[name]), np.float32).reshape(-1) for name in names]
    return np.concatenate(parts) if parts else np.empty(0, np.float32)
