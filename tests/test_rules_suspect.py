"""Rules that refuse suspicious updates: by hand, and in their limits."""

from types import SimpleNamespace

import numpy as np
import pytest

from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import Dispatch, Update
from fairlag.core.vector import Vector
from fairlag.errors import StrategyError
from fairlag.rules import select, suspect, trigger, weigh
from fairlag.rules.admit import Remembering
from fairlag.zoo import buffered_fedavg, defended
from tests.support.played import SIZE, outcome, played


def vector(*values: float) -> Vector:
    return np.array(values, np.float32)


class Seen:
    """Just enough of a view: versions, the number of clients, and the server's own step."""

    def __init__(self, *versions: Vector, n: int = 4, reference: Vector | None = None) -> None:
        self._versions, self.n, self.version = versions, n, 0
        self.update_counts = np.zeros(n)
        self.reference = reference

    def parameters(self, version: int) -> Vector:
        return self._versions[version]


def judged(rule: object, view: Seen, *rows: tuple[int, int, Vector]) -> list[str | None]:
    """What a rule says of updates: (client, version, update)."""
    judge = rule.start(view) if isinstance(rule, Remembering) else rule  # type: ignore[arg-type]
    tasks = [Dispatch(number, client, version, 0, 0.0) for number, (client, version, _) in enumerate(rows)]
    return [judge(Update(row[2]), task, view) for task, row in zip(tasks, rows, strict=True)]  # type: ignore[operator]


STEEP = "it changed more than the model did"


def test_kardam_by_hand() -> None:
    """The model moves by 1. Three clients change by 1, the fourth by 20: above the third of four constants."""
    view = Seen(vector(0, 0), vector(1, 0))
    first = [(client, 0, vector(0, 1)) for client in range(4)]
    second = [(client, 1, vector(0, 2)) for client in range(3)]
    said = judged(suspect.lipschitz(1), view, *first, *second, (3, 1, vector(0, -19)))
    assert said == [None] * 7 + [STEEP]


def test_kardam_takes_the_clients_previous_update_also_if_it_was_refused() -> None:
    """The fourth client stays where it is: its constant is 0."""
    view = Seen(vector(0, 0), vector(1, 0), vector(2, 0))
    rows = [(client, version, vector(0, version)) for version in (0, 1) for client in range(3)]
    liar = [(3, 0, vector(0, 0)), (3, 1, vector(0, 50)), (0, 2, vector(0, 2)), (3, 2, vector(0, 50))]
    assert judged(suspect.lipschitz(1), view, *rows, *liar) == [None] * 7 + [STEEP, None, None]


def test_kardam_judges_a_client_once_per_version() -> None:
    """The fourth is refused, and again with an update like the others', until the model has moved."""
    view = Seen(vector(0, 0), vector(1, 0), vector(2, 0))
    rows = [(client, version, vector(0, version)) for version in (0, 1) for client in range(3)]
    fourth = [(3, 0, vector(0, 0)), (3, 1, vector(0, 9)), (3, 1, vector(0, 1))]
    moved = [(0, 2, vector(0, 2)), (3, 2, vector(0, 2))]
    said = judged(suspect.lipschitz(1), view, *rows, *fourth, *moved)
    assert said == [None] * 7 + [STEEP, STEEP, None, None]


def test_what_kardam_keeps_is_refused_with_its_size_if_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = defended(buffered_fedavg(buffer=2), "kardam(1)")
    monkeypatch.setattr("fairlag.core.rows._available_memory", lambda: 10**9)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=10**9))
    words = r"keeping the last update and its version of each of 1,000,000 clients takes 8\.0 GB \(2,000 numbers each\)"
    with pytest.raises(StrategyError, match=words):
        Server(strategy, clients=10**6, parameters=vector(*range(1000)))


def test_kardam_hears_no_client_twice_in_a_row() -> None:
    view = Seen(vector(0, 0))
    said = judged(suspect.lipschitz(1), view, *((client, 0, vector(0, 1)) for client in (0, 0, 1, 0)))
    assert said == [None, "more than 1 of the last 2 updates are from its client", None, None]


def test_of_the_last_2f_updates_a_client_made_at_most_f() -> None:
    senders: list[int] = []
    rule = suspect.lipschitz(2)
    assert isinstance(rule, Remembering)
    judge = rule.start(Seen(vector(0)))  # type: ignore[arg-type]
    for number, client in enumerate(np.random.default_rng(0).integers(0, 3, 200).tolist()):
        if judge(Update(vector(0)), Dispatch(number, client, 0, 0, 0.0), Seen(vector(0))) is None:  # type: ignore[arg-type]
            senders.append(client)
    windows = [senders[place : place + 4] for place in range(len(senders) - 3)]
    assert max(window.count(client) for window in windows for client in range(3)) == 2


def test_kardam_without_attackers_is_exponential_weighting_of_every_arrival() -> None:
    plain = Strategy(select.all_idle(), trigger.count(1), weigh.damped(0.2))
    assert outcome(played(defended(plain, "kardam(0)"))) == outcome(played(plain))


def test_an_update_far_from_the_servers_own_is_refused() -> None:
    view = Seen(vector(0, 0), reference=vector(0, 2))
    rows = [(0, 0, vector(0, 5)), (0, 0, vector(0, 5.1)), (0, 0, vector(3, 2)), (0, 0, vector(0, -2))]
    far = "far from the server's own step"
    assert judged(suspect.near_reference(1.5), view, *rows) == [None, far, None, far]
    assert judged(suspect.near_reference(np.inf), view, *rows) == [None] * 4


def test_zeno_by_hand() -> None:
    """Δ_s = (0, 2): of Δ = (3, 4), Δ̃ = (1.2, 1.6), so ⟨Δ_s, Δ̃⟩ = 3.2 and ‖Δ̃‖² = 4."""
    view, update = Seen(vector(0, 0), reference=vector(0, 2)), (0, 0, vector(3, 4))
    against = "against the server's own step"
    for rho, eps, reason in ((0.79, 0.0, None), (0.81, 0.0, against), (0.81, 0.05, None)):
        assert judged(suspect.along_reference(gamma=1.0, rho=rho, eps=eps), view, update) == [reason]
    assert judged(suspect.along_reference(gamma=2.0, rho=1.59, eps=0.0), view, update) == [None]
    assert judged(suspect.along_reference(gamma=1.0, rho=0.0, eps=0.0), view, (0, 0, vector(0, -1))) == [against]


def one_everywhere(version: int, parameters: Vector) -> Vector:
    return np.ones(SIZE, np.float32)


@pytest.mark.parametrize("text", ["zeno", "aflguard"])
def test_a_server_with_examples_of_its_own_hears_no_sign_flip(text: str) -> None:
    strategy = defended(buffered_fedavg(buffer=4), text)
    server = played(strategy, factor=lambda client: -10.0 if client == 3 else 1.0, reference=one_everywhere)
    assert server.view.weight_sums[3] == 0
    assert server.versions.newest.min() > 20


def test_everything_is_admitted_without_a_bound() -> None:
    plain = buffered_fedavg(buffer=4)
    guarded = played(defended(plain, "aflguard(inf)"), reference=one_everywhere)
    assert outcome(guarded) == outcome(played(plain))


def test_zeno_makes_updates_as_long_as_its_own_step() -> None:
    view = Seen(vector(0, 0), reference=vector(0, 2))
    edited = suspect.as_long_as_reference(np.array([[3, 4], [0, 0]], np.float32), None, view)  # type: ignore[arg-type]
    assert edited == pytest.approx(np.array([[1.2, 1.6], [0, 0]]))


def test_a_server_without_examples_refuses_such_a_strategy() -> None:
    with pytest.raises(StrategyError, match="compares updates with a step on the server's own examples, but"):
        played(defended(buffered_fedavg(buffer=4), "aflguard"))
