"""What algorithms need, as read from their rules, against what their papers say."""

from dataclasses import replace

import numpy as np
import pytest

from fairlag import zoo
from fairlag.core.buffer import Buffer
from fairlag.core.types import Floats
from fairlag.core.view import View
from fairlag.zoo.needs import needs

ROUNDS = ["fedavg", "fedprox", "fedavgm", "fednova", "fedadagrad", "fedadam", "fedyogi", "safa", "qfedavg"]
WAITS = ["malenia", "ringleader", "fedcompass"]
ANYTIME = ["buffered_fedavg", "fedasync", "fedbuff", "fedfix", "pisces", "asofed", "rennala", "ringmaster", "fedfa"]
HISTORY = [
    "fedstaleweight",
    "fairshare",
    "rate_tracking",
    "async_fedavg",
    "fedfix",
    "asyncfeded",
    "pisces",
    "fedcompass",
]
TOGETHER = ["asofed", "safa", "ringleader", "malenia"]
ANYBODY = ["buffered_fedavg", "exponential", "fedavg", "fednova", "fedasync", "fedbuff", "delay_adaptive", "fadas"]
ANYBODY += ["rennala", "ringmaster", "qfedavg", "fedfa"]


@pytest.mark.parametrize(
    ("name", "rounds"), [*((name, True) for name in ROUNDS + WAITS), *((name, False) for name in ANYTIME)]
)
def test_rounds_are_needed_by_those_that_wait_for_certain_clients(name: str, rounds: bool) -> None:
    assert needs(zoo.ALGORITHMS[name].make()).rounds == rounds


@pytest.mark.parametrize(
    ("name", "identities"), [*((name, True) for name in HISTORY + TOGETHER), *((name, False) for name in ANYBODY)]
)
def test_identities_are_needed_by_those_that_tell_clients_apart(name: str, identities: bool) -> None:
    assert needs(zoo.ALGORITHMS[name].make()).identities == identities


def test_a_users_own_weighting_is_asked_too() -> None:
    def first_only(buffer: Buffer, view: View) -> Floats:
        return np.where(buffer.clients == buffer.clients.min(), 1.0, 0.0)

    assert needs(replace(zoo.fedbuff(), weigh=first_only)).identities


def test_memories_are_told_with_where_they_are() -> None:
    found = {name: needs(zoo.ALGORITHMS[name].make()).memory for name in ("fedavg", "safa", "asofed", "fedfa")}
    assert found == {
        "fedavg": "",
        "safa": "server: averaging()",
        "asofed": "server: replacing(), clients: 2 vectors",
        "fedfa": "server: last_models(5)",
    }
