"""Strategies: what cannot work is refused at construction, in one sentence that has the offending value."""

from collections.abc import Sequence
from dataclasses import FrozenInstanceError, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from fairlag import zoo
from fairlag.core.buffer import Buffer
from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import Floats
from fairlag.core.view import View
from fairlag.errors import FairlagError, InputError, StrategyError
from fairlag.rules import apply, edit, reduce, select, trigger, weigh
from fairlag.rules.local import Local
from fairlag.rules.select import Selector
from tests.support.scenes import Scene, vec

PLAIN = zoo.buffered_fedavg(buffer=2)


def one_argument(buffer: Buffer) -> Floats:
    return np.ones(len(buffer))


def three_arguments(buffer: Buffer, view: View, more: int) -> Floats:
    return np.ones(more)


def keyword_only(buffer: Buffer, *, view: View) -> Floats:
    return np.ones(len(buffer))


def refused(**slots: Any) -> str:
    with pytest.raises(StrategyError) as caught:
        replace(PLAIN, **slots)
    message = str(caught.value)
    assert "\n" not in message and isinstance(caught.value, InputError) and isinstance(caught.value, FairlagError)
    return message


@pytest.mark.parametrize("rule", [one_argument, three_arguments, keyword_only])
def test_a_weighting_of_the_wrong_arguments_is_named(rule: object) -> None:
    assert refused(weigh=rule) == f"weigh is {rule.__name__}, it must be a function of (buffer, view)"  # type: ignore[attr-defined]


@pytest.mark.parametrize("rule", [7, "uniform", None, [weigh.uniform], max])
def test_a_weighting_that_is_no_function_is_named(rule: object) -> None:
    message = refused(weigh=rule)
    assert message.startswith("weigh is ") and message.endswith("it must be a function of (buffer, view)")


def test_a_function_with_defaults_or_made_by_partial_is_accepted() -> None:
    def tempered(buffer: Buffer, view: View, power: float = 0.5) -> Floats:
        return np.full(len(buffer), power)

    replace(PLAIN, weigh=tempered)
    scene = Scene(replace(PLAIN, weigh=partial(tempered, power=2.0)), 2, parameters=vec(0))
    scene.arrive(0, 1)
    scene.arrive(1, 1)
    assert scene.parameters == [4.0]


@pytest.mark.parametrize(
    ("slot", "words"),
    [("admit", "update, task, view"), ("edit", "updates, buffer, view"), ("reduce", "weights, updates")],
)
def test_other_slots_say_what_they_are_functions_of(slot: str, words: str) -> None:
    assert refused(**{slot: one_argument}) == f"{slot} is one_argument, it must be a function of ({words})"


@pytest.mark.parametrize("slot", ["select", "trigger", "apply"])
def test_a_rule_in_the_wrong_slot_is_named(slot: str) -> None:
    message = refused(**{slot: weigh.uniform})
    assert message.startswith(f"{slot} is <function uniform") and f"it must be a {slot.title()}" in message


def test_a_rule_that_was_not_called_is_refused() -> None:
    assert refused(trigger=trigger.count).startswith("trigger is <function count")


def test_a_cohort_trigger_needs_rounds() -> None:
    message = refused(trigger=trigger.cohort_done())
    assert message.startswith("cohort_done() needs") and message.endswith("not all_idle(fresh=True)")


def test_a_buffer_larger_than_the_fleet_never_fills_with_fresh_clients() -> None:
    with pytest.raises(StrategyError, match=r"a buffer of 5 never fills with 4 clients .* \(fresh = true\)"):
        Server(zoo.fedstaleweight(buffer=5), clients=4)
    Server(zoo.fedstaleweight(buffer=5), clients=5)
    Server(zoo.fedstaleweight(buffer=5, fresh=False), clients=4)
    Server(zoo.fedbuff(buffer=5, concurrency=9), clients=4)


def test_a_buffer_larger_than_the_fleet_fills_without_fresh() -> None:
    scene = Scene(zoo.buffered_fedavg(buffer=3, fresh=False), 1, parameters=vec(0))
    for _ in range(3):
        scene.arrive(0, 3)
    assert scene.parameters == [3.0] and scene.server.partial == 0


def test_a_cohort_larger_than_the_fleet_is_refused() -> None:
    with pytest.raises(StrategyError, match=r"cohort\(10\) needs 10 clients, the fleet has 4"):
        Server(zoo.fedavg(cohort=10), clients=4)


@pytest.mark.parametrize("option", [{"aggregations": 0}, {"aggregations": -1}, {"until_time": float("nan")}])
def test_an_end_that_never_comes_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Server(PLAIN, clients=2, **option)


def test_a_strategy_is_written_as_its_composition() -> None:
    strategy = replace(zoo.fedstaleweight(buffer=3, window=9, lr=0.5), edit=edit.clip(2.0))
    assert repr(strategy) == (
        "Strategy(select=all_idle(fresh=True), trigger=count(3), "
        "weigh=normalised(mean_staleness(scale=3, window=9)), edit=clip(2.0), reduce=weighted_sum, apply=scale(0.5))"
    )


def test_a_strategy_is_frozen_and_variants_leave_it_alone() -> None:
    with pytest.raises(FrozenInstanceError):
        PLAIN.weigh = weigh.by_examples  # type: ignore[misc]
    assert replace(PLAIN, weigh=weigh.by_examples).weigh is weigh.by_examples and PLAIN.weigh is weigh.uniform


def test_one_strategy_object_serves_two_servers_without_sharing_anything() -> None:
    strategy = Strategy(select.concurrency(2), trigger.count(2), weigh.uniform)
    one, two = Scene(strategy, 4), Scene(strategy, 4)
    assert one.first == two.first
    one.arrive(max(one.tasks))
    assert one.server.counts["dispatched"] == 3 and two.server.counts["dispatched"] == 2


def test_every_slot_takes_part_in_the_step() -> None:
    strategy = replace(
        PLAIN,
        weigh=lambda buffer, view: np.array([1.0, 0.5]),
        edit=edit.clip(5.0),
        reduce=reduce.trimmed_mean(0.0),
        apply=apply.chain(apply.scale(0.5), apply.scale(4.0)),
    )
    scene = Scene(strategy, 2, parameters=vec(1, 1))
    scene.arrive(0, 6, 8)  # clipped to (3, 4)
    scene.arrive(1, 1, 0)
    assert scene.parameters == pytest.approx([1 + 2 * 1.5 * 2, 1 + 2 * 1.5 * 2])  # mean (2, 2), weights 1.5, factor 2


@pytest.mark.parametrize(
    "slot",
    [
        {"reduce": lambda weights, updates: np.ones(3, np.float32)},
        {"reduce": lambda weights, updates: np.ones((2, 1), np.float32)},
        {"edit": lambda updates, buffer, view: updates[:1]},
    ],
    ids=["reduce-long", "reduce-column", "edit-short"],
)
def test_a_users_rule_that_returns_another_shape_is_refused_in_a_sentence(slot: dict[str, Any]) -> None:
    scene = Scene(replace(PLAIN, **slot), 2, parameters=vec(0, 0))
    scene.arrive(0, 1, 1)
    with pytest.raises(StrategyError):
        scene.arrive(1, 1, 1)


def broken(*given: object) -> Any:
    raise KeyError("gap")


class Broken(Selector):
    def pick(self) -> Sequence[int]:
        return broken()  # type: ignore[no-any-return]

    def free(self, client: int, current: bool, pending: bool) -> None: ...


@pytest.mark.parametrize(
    ("slot", "kind"),
    [
        ({"admit": broken}, "admission rule broken"),
        ({"edit": broken}, "edit broken"),
        ({"reduce": broken}, "reduction broken"),
        ({"apply": apply.Apply("mine", lambda parameters, layout: (), broken)}, "server rule mine"),
        ({"trigger": trigger.Trigger("mine", broken)}, "trigger mine"),
        ({"select": select.Select("mine", lambda view, stream: Broken())}, "selection mine"),
        ({"local": Local(pace=broken)}, r"rule of Local\(pace=broken\)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_users_rule_that_raises_is_named_in_a_sentence(slot: dict[str, Any], kind: str) -> None:
    with pytest.raises(
        StrategyError, match=rf"^the {kind} raised KeyError: 'gap' \(test_core_strategy\.py, line \d+\)$"
    ):
        Scene(replace(zoo.buffered_fedavg(buffer=1), **slot), 2, parameters=vec(0, 0)).arrive(0, 1, 1)
