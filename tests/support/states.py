"""States and records as values that can be compared, and the accounts in a checkpoint."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load, save

from fairlag.core.accounts import Accounts, Entitlement
from fairlag.core.state import State, pack, take, unpack
from fairlag.core.types import Floats
from fairlag.lab.checkpoints import found
from fairlag.lab.folder import unpacked


class Books(NamedTuple):
    """The accounts in the newest checkpoint of a run."""

    accounts: Accounts
    importance: list[float]
    spent: Floats

    @property
    def earned(self) -> Floats:
        earned: Floats = self.spent + self.accounts.balances[: len(self.spent)]
        return earned


def books(out: Path) -> Books:
    """The accounts in the newest checkpoint of a deployment."""
    arrays, words = unpacked(found(out)[0].file)
    state = unpack(arrays, words["text"])
    for name in ("simulation", "server", "ledger"):
        state = take(state, name, dict)
    kept = take(state, "accounts", dict)
    accounts = Accounts(Entitlement())
    accounts.restore(kept)
    return Books(accounts, take(kept, "importance", np.ndarray).tolist(), take(state, "columns", dict)["weight"])


def plain(value: Any) -> Any:
    """Records, events and commands as values that can be compared; arrays by their bytes."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return (type(value), *map(plain, value)) if isinstance(value, tuple) else value


def exact(state: State) -> tuple[object, str]:
    arrays, text = pack(state)
    return {path: plain(array) for path, array in arrays.items()}, text


def through_a_file(state: State) -> State:
    arrays, text = pack(state)
    return unpack(load(save(arrays)), text)
