"""Accounts, beside a plain twin in exact fractions that pays every client at every version, and scripted lives."""

import re
from fractions import Fraction
from math import inf
from random import Random
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlag.core.accounts import Accounts, Entitlement
from fairlag.core.state import pack, unpack
from fairlag.core.strategy import Strategy
from fairlag.errors import StrategyError
from fairlag.rules import select, trigger, weigh
from fairlag.zoo import fairshare
from tests.support.scenes import Scene, vec


def by_account(**options: Any) -> Strategy:
    return fairshare(estimator="account", **{"cap": 2.0, **options})


class Twin:
    """What ALGORITHMS says, word for word: everyone's balance is written down again at every version."""

    def __init__(self, terms: Entitlement) -> None:
        self.terms = terms
        self.earned: dict[int, Fraction] = {}
        self.spent: dict[int, Fraction] = {}
        self.importance: dict[int, Fraction] = {}
        self.there: set[int] = set()
        self.kept = Fraction(0)

    def held(self, client: int) -> Fraction:
        return self.earned.get(client, Fraction(0)) - self.spent.get(client, Fraction(0))

    def sharing(self) -> list[int]:
        limit = inf if self.terms.limit is None else Fraction(self.terms.limit)
        there = self.there if self.terms.entitled == "present" else set(self.earned)
        return sorted(each for each in self.earned if each in there and self.held(each) < limit)

    def earn(self, senders: list[int]) -> None:
        reward, count = Fraction(self.terms.reward), len(senders)
        new = {client for client in senders if client not in self.earned}
        sharing = self.sharing()
        self.kept += (1 - reward) * (1 - Fraction(len(new), count))
        total = sum(self.importance[client] for client in sharing)
        shared = min(self.kept, Fraction(2)) if sharing else Fraction(0)
        for client in sharing:
            self.earned[client] += shared * self.importance[client] / total
        self.kept -= shared
        for client in new:
            self.earned[client] = (1 - reward) / count
        for client in senders:
            self.earned[client] += reward / count

    def spend(self, senders: list[int], weights: list[Fraction]) -> None:
        for client, weight in zip(senders, weights, strict=True):
            self.spent[client] = self.spent.get(client, Fraction(0)) + weight


TERMS = st.builds(
    Entitlement,
    entitled=st.sampled_from(["present", "known"]),
    limit=st.sampled_from([None, 0.1237, 0.6131, 1.9371]),  # reached by no sum of simple fractions, so never a tie
    reward=st.sampled_from([0.0, 0.0, 0.25, 1.0]),
)


@settings(max_examples=300, deadline=None)
@given(TERMS, st.integers(0, 10**6), st.booleans())
def test_as_if_everyone_were_paid_at_every_version(terms: Entitlement, seed: int, resumed: bool) -> None:
    random, twin, accounts = Random(seed), Twin(terms), Accounts(terms)
    clients = random.randint(1, 7)
    for version in range(1, 40):
        for client in range(clients):
            if random.random() < 0.2:
                (twin.there.remove if client in twin.there else twin.there.add)(client)
                if client in twin.there:
                    twin.importance[client] = Fraction(random.choice([1, 1, 1, 2, 7]), 2)
                    accounts.join(client, float(twin.importance[client]))
                else:
                    accounts.leave(client)
        senders = [random.randrange(clients) for _ in range(random.randint(1, 5))]
        for client in set(senders) - set(twin.importance):  # an update can only come from somebody who was there
            twin.importance[client] = Fraction(1)
            accounts.join(client)
            accounts.leave(client)
        twin.earn(senders)
        accounts.earn(senders)
        spent = random.choice([Fraction(0), Fraction(1, 3), Fraction(1)])
        weights = [spent * max(twin.held(client), Fraction(0)) / senders.count(client) for client in senders]
        twin.spend(senders, weights)
        accounts.spend(senders, [float(weight) for weight in weights])
        if resumed and version == 20:
            arrays, text = pack(accounts.state())
            accounts = Accounts(terms)
            accounts.restore(unpack(arrays, text))
        held = np.array([float(twin.held(client)) for client in range(clients)])
        found = np.array([accounts.held(client) if client in twin.importance else 0.0 for client in range(clients)])
        np.testing.assert_allclose(found, held, atol=1e-9)
        assert abs(float(twin.kept) - accounts.kept) < 1e-9
        assert sum(twin.earned.values()) + twin.kept == version


def weights_of(scene: Scene) -> list[list[float]]:
    return [[round(weight, 9) for weight in weights] for weights in scene.weights]


def test_a_newcomers_first_update_counts_as_in_fedavg_and_the_rest_is_shared() -> None:
    scene = Scene(by_account(buffer=2, fresh=False, cap=None), 3)
    for client in (0, 1, 0, 1, 2, 0, 0, 2):
        scene.arrive(client)
    # 0 and 1 are new: a half each. Both then earn a half. Then 2 is new, 0 and 1 share the other half, 1 keeps its.
    # In the fourth version all three share: 0 has its third, 2 a third, and 1 holds a quarter and a third.
    assert weights_of(scene) == [[0.5, 0.5], [0.5, 0.5], [0.5, 0.25], [round(1 / 3, 9), round(1 / 3, 9)]]
    assert scene.server.view.balance(np.array([1])).item() == pytest.approx(0.25 + 1 / 3)
    assert scene.server.view.earned.sum() == pytest.approx(4)


def test_several_updates_of_one_client_share_what_it_holds() -> None:
    scene = Scene(by_account(buffer=3, fresh=False, cap=None), 2)
    for client in (0, 0, 1, 0, 0, 1):
        scene.arrive(client)
    # Two newcomers earn a third each. The third that nobody was there to share goes to both with the next version.
    assert weights_of(scene)[0] == [round(1 / 6, 9), round(1 / 6, 9), round(1 / 3, 9)]
    assert weights_of(scene)[1] == [round(1 / 3, 9), round(1 / 3, 9), round(2 / 3, 9)]


def test_a_fleet_of_one_gets_all_of_every_version_in_the_end() -> None:
    scene = Scene(by_account(buffer=2, fresh=False, cap=None), 1)
    for _ in range(6):
        scene.arrive(0)
    assert [sum(weights) for weights in scene.weights] == [0.5, 1.5, 1.0]


def test_whoever_is_away_earns_nothing_and_keeps_what_it_has() -> None:
    scene = Scene(by_account(buffer=1, fresh=False, cap=None), 3)
    for client in (0, 1, 2, 0):
        scene.arrive(client)
    before = scene.server.view.earned.copy()
    scene.leave(1)
    scene.arrive(0)
    scene.arrive(2)
    gained = scene.server.view.earned - before
    assert gained.tolist() == pytest.approx([1.0, 0.0, 1.0])
    known = Scene(by_account(buffer=1, fresh=False, cap=None, entitled="known"), 3)
    for client in (0, 1, 2, 0):
        known.arrive(client)
    before = known.server.view.earned.copy()
    known.leave(1)
    known.arrive(0)
    assert (known.server.view.earned - before).tolist() == pytest.approx([1 / 3] * 3)


def test_if_everybody_who_was_heard_is_gone_their_part_waits() -> None:
    scene = Scene(by_account(buffer=2, fresh=False, cap=None), 3)
    scene.arrive(0)
    scene.arrive(0)
    scene.leave(0)
    assert scene.server.view.earned.sum() == pytest.approx(0.5)
    scene.arrive(1)
    scene.arrive(1)
    assert scene.server.view.earned.sum() == pytest.approx(1.0)
    scene.arrive(1)
    scene.arrive(1)
    assert scene.server.view.earned.tolist() == pytest.approx([0.5, 2.5, 0.0])


def away_at_every_tick(entitled: Literal["present", "known"], ticks: int) -> tuple[Scene, float]:
    """Two clients that send, and are gone when the clock makes a version of it; and when the last tick was."""
    clock = Strategy(select.all_idle(fresh=False), trigger.every(10.0), weigh.by_balance(entitled=entitled))
    scene, time = Scene(clock, 2), 0.0
    for _ in range(ticks):
        if time:
            scene.join(0, 1, at=time + 1)
        for client in (0, 1):
            scene.arrive(client, at=time + 2)
        for client in (0, 1):
            scene.leave(client, at=time + 3)
        time += 10.0
        scene.wake(time)
    return scene, time


@pytest.mark.parametrize(("entitled", "weight"), [("present", 0.0), ("known", 0.5)])
def test_who_is_away_whenever_a_version_is_made_earns_only_if_everyone_known_does(
    entitled: Literal["present", "known"], weight: float
) -> None:
    scene, _ = away_at_every_tick(entitled, 5)
    assert weights_of(scene) == [[0.5, 0.5], *[[weight, weight]] * 4]


def test_whoever_comes_back_first_gets_one_version_more_with_each_and_not_all_that_was_kept() -> None:
    scene, time = away_at_every_tick("present", 21)
    assert scene.server.view.earned.tolist() == [0.5, 0.5]
    scene.join(0, at=time + 1)
    for _ in range(3):
        scene.arrive(0, at=time + 2)
        time += 10.0
        scene.wake(time)
    assert weights_of(scene)[-3:] == [[2.0]] * 3
    scene.join(1, at=time + 1)
    for _ in range(20):  # 17 units are left: both share until client 1 holds its limit, then they are client 0's
        scene.arrive(0, at=time + 2)
        time += 10.0
        scene.wake(time)
    assert weights_of(scene)[-20:] == [[1.0]] * 5 + [[2.0]] * 12 + [[1.0]] * 3
    assert scene.server.view.earned.sum() == pytest.approx(44)


def test_whoever_holds_the_limit_earns_nothing_until_it_spends() -> None:
    scene = Scene(by_account(buffer=1, fresh=False, cap=None, limit=0.75), 2)
    scene.arrive(0)
    scene.arrive(1)
    for _ in range(10):
        scene.arrive(0)
    # From the third version on both earn a half; client 1 holds 1.0 after two of them, and 0 then gets all.
    assert weights_of(scene)[2:] == [[0.5], [0.5], *[[1.0]] * 8]
    assert scene.server.view.balance(np.array([0, 1])).tolist() == pytest.approx([0.0, 1.0])
    scene.arrive(1)
    assert weights_of(scene)[-1] == [1.0]
    scene.arrive(0)  # who holds 1.0 now, and so the whole version is 1's
    assert scene.server.view.balance(np.array([1])).tolist() == pytest.approx([1.0])


def test_what_the_cap_holds_back_stays_in_the_account() -> None:
    scene = Scene(by_account(buffer=2, cap=0.5, limit=None, fresh=False), 2)
    for client in (0, 1) * 4:
        scene.arrive(client)
    assert weights_of(scene) == [[0.25, 0.25]] * 4
    assert scene.server.view.balance(np.array([0, 1])).tolist() == pytest.approx([1.0, 1.0])


def test_what_most_holds_back_stays_in_the_account_too() -> None:
    scene = Scene(by_account(buffer=2, most=0.3, limit=None, fresh=False), 2)
    for client in (0, 1, 0, 1, 0, 0):
        scene.arrive(client)
    assert weights_of(scene) == [[0.3, 0.3]] * 3
    assert scene.server.view.balance(np.array([0, 1])).tolist() == pytest.approx([1.5 - 1.2, 1.5 - 0.6])


def test_in_a_partial_version_a_newcomers_part_is_that_of_the_updates_there_are() -> None:
    scene = Scene(by_account(buffer=3, cap=None), 3)
    for client in (0, 1, 2, 0):
        scene.arrive(client)
    scene.leave(2)
    scene.arrive(1)  # everyone who is there waits for a newer version, so it is made of two updates
    assert [merged.partial for merged in scene.merged] == [False, True]
    assert weights_of(scene)[1] == [0.5, 0.5]
    alone = Scene(by_account(buffer=3, cap=None), 3)
    for client in (1, 2):
        alone.leave(client)
    alone.arrive(0)
    assert weights_of(alone) == [[1.0]]  # the only update of its version


def test_in_rounds_whoever_is_not_drawn_earns_and_keeps_it_for_its_turn() -> None:
    rounds = Strategy(select.cohort(2), trigger.cohort_done(), weigh.by_balance())
    scene = Scene(rounds, 4)
    for _ in range(12):
        for client in sorted(scene.server.view.tasks[number].client for number in scene.server.view.tasks):
            scene.arrive(client)
    sent = [[task.client for task in merged.tasks] for merged in scene.merged]
    known = next(place for place in range(12) if len({client for each in sent[: place + 1] for client in each}) == 4)
    checked = 0
    for place in range(known + 1, 12):
        for client, weight in zip(sent[place], scene.weights[place], strict=True):
            before = max(earlier for earlier in range(place) if client in sent[earlier])
            if before >= known:  # from then on everyone earns a quarter of each version
                assert weight == pytest.approx((place - before) / 4)
                checked += 1
    assert checked > 8


def test_a_client_first_seen_late_gets_what_an_update_weighs_and_then_an_equal_part() -> None:
    scene = Scene(by_account(buffer=1, fresh=False, cap=None), 3, join=False)
    scene.join(0, 1)
    for client in (0, 1) * 10:
        scene.arrive(client)
    scene.join(2)
    scene.arrive(2)
    assert weights_of(scene)[-1] == [1.0] and scene.server.view.earned[2] == 1.0
    before = scene.server.view.earned
    for client in (0, 1, 2):
        scene.arrive(client)
    assert (scene.server.view.earned - before).tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_if_everybody_holds_the_limit_the_part_waits_until_one_has_spent() -> None:
    scene = Scene(by_account(buffer=1, fresh=False, cap=0.25, limit=0.5), 1)
    for _ in range(8):
        scene.arrive(0)
    # It earns 1 with the grant and spends a quarter each time. Once it holds less than 0.5, in the fourth version, two
    # units are paid. The other five wait.
    assert scene.server.view.earned.tolist() == pytest.approx([3.0])
    assert weights_of(scene) == [[0.25]] * 8


def test_importance_by_examples_may_change_during_a_run() -> None:
    scene = Scene(by_account(buffer=1, fresh=False, importance="examples", cap=None), 2, examples=[1, 1])
    for client in (0, 1):
        scene.arrive(client, examples=1)
    before = scene.server.view.earned
    scene.arrive(1, examples=3)  # counts from the version that it is part of
    assert (scene.server.view.earned - before).tolist() == pytest.approx([0.25, 0.75])
    assert weights_of(scene)[-1] == [0.75]
    before = scene.server.view.earned
    scene.arrive(1, examples=1)
    assert (scene.server.view.earned - before).tolist() == pytest.approx([0.5, 0.5])


def test_importance_by_examples_and_by_group() -> None:
    accounts = Accounts(Entitlement(importance={"b": 3.0}))
    assert accounts.terms.of_group("b") == 3 and accounts.terms.of_group("a") == 1
    scene = Scene(by_account(buffer=1, fresh=False, importance="examples", cap=None), 2, examples=[1, 3])
    scene.arrive(0, examples=1)
    scene.arrive(1, examples=3)
    for _ in range(4):
        scene.arrive(0, examples=1)
    gained = scene.server.view.earned
    scene.arrive(0, examples=1)
    assert (scene.server.view.earned - gained).tolist() == pytest.approx([0.25, 0.75])


def test_with_the_whole_reward_it_is_fedavg_to_the_bit() -> None:
    paid = Scene(by_account(buffer=4, reward=1.0, fresh=False), 3, parameters=vec(0, 0, 0))
    for client in (0, 1, 2, 0, 0, 1, 0, 2):
        paid.arrive(client)
    assert paid.weights == [[0.25] * 4] * 2


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"entitled": "all"}, "entitled is 'all', it must be 'present' or 'known'"),
        (
            {"importance": "size"},
            "importance is 'size', it must be 'uniform', 'examples', or a number per client group",
        ),
        ({"importance": {"a": 0.0}}, "the importance of 'a' is 0.0, it must be between 0.0001 and 10000"),
        ({"importance": {"a": 1e17}}, "the importance of 'a' is 1e+17, it must be between 0.0001 and 10000"),
        ({"limit": -1.0}, "the limit is -1.0, it must be positive, or none for no limit"),
        ({"reward": 1.5}, "the reward is 1.5, it must be between 0 and 1"),
    ],
)
def test_terms_that_make_no_sense(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(StrategyError, match="^" + re.escape(sentence)):
        weigh.by_balance(**wrong)


def test_a_rule_that_reads_accounts_says_so() -> None:
    def mine(buffer: Any, view: Any) -> Any:
        return view.balance(buffer.clients)

    scene = Scene(by_account(buffer=1), 1)
    assert scene.server.strategy.account == Entitlement()
    buffer, view = weigh.example()
    with pytest.raises(StrategyError, match=r"decorate it with @fairlag\.rules\.reads_account"):
        mine(buffer, view)
