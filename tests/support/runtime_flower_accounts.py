"""What other tests share with test_runtime_flower_accounts.py."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from fairlag.core.accounts import Accounts, Entitlement
from fairlag.core.state import take, unpack
from fairlag.core.types import Floats
from fairlag.lab.checkpoints import found
from fairlag.lab.folder import unpacked


class Books(NamedTuple):
    """What the newest checkpoint of a run says of its accounts."""

    accounts: Accounts
    importance: list[float]
    spent: Floats

    @property
    def earned(self) -> Floats:
        earned: Floats = self.spent + self.accounts.balances[: len(self.spent)]
        return earned


def books(out: Path) -> Books:
    """What the newest checkpoint of a deployment says of its accounts."""
    arrays, words = unpacked(found(out)[0].file)
    state = unpack(arrays, words["text"])
    for name in ("simulation", "server", "ledger"):
        state = take(state, name, dict)
    kept = take(state, "accounts", dict)
    accounts = Accounts(Entitlement())
    accounts.restore(kept)
    return Books(accounts, take(kept, "importance", np.ndarray).tolist(), take(state, "columns", dict)["weight"])
