"""Fast paths take over nothing that they do not implement: every field is decided upon, and a new one falls back."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from inspect import signature
from typing import Any

import numpy as np
import pytest

from fairlag import zoo
from fairlag.core.accounts import Entitlement
from fairlag.core.strategy import Strategy
from fairlag.core.types import Report
from fairlag.core.vector import Vector
from fairlag.fastpath import other_field
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.learn.blueprint import Blueprint
from fairlag.learn.learner import Learner, Order
from fairlag.learn.local import Recipe, schedule
from fairlag.learn.small import BATCHED, COMPILED
from fairlag.rules.apply import Apply, scale
from fairlag.rules.local import Local
from fairlag.rules.select import all_idle
from fairlag.rules.trigger import count
from fairlag.rules.weigh import by_balance, uniform
from fairlag.runtime.compiled import paged, spec
from tests.support.learning import PLACEMENT, blueprint, data, drawn, first, trained_plainly

REFERENCE = {
    "direction",
    "optimiser",
    "optimiser_state",
    "clip_norm",
    "clip_value",
    "accumulate",
    "lr_within_task",
    "precision",
    "train",
    "memory",
}
"""What only PyTorch, task by task, implements."""

FAST_PATHS: dict[str, tuple[type[Any], frozenset[str], set[str]]] = {
    "batched training": (Recipe, BATCHED, REFERENCE),
    "compiled training": (Recipe, COMPILED, REFERENCE | {"losses", "start_loss"}),
    "compiled timeline": (Strategy, spec.STRATEGY, set()),
    "its local training": (Local, spec.LOCAL, {"steps"}),
    "its client groups": (Group, spec.GROUP, {"availability", "join", "leave", "per_device", "vanish"}),
    "its accounts": (Entitlement, spec.TERMS, set()),
    "learning by pages": (Strategy, paged.STRATEGY, {"admit", "edit"}),
    "local training by pages": (Local, paged.LOCAL, {"steps", "pace", "direction", "losses", "start_loss"}),
    "server rules by pages": (Apply, paged.APPLY, {"observe"}),
}
"""For each: a record, the fields that it implements, and those that it leaves to the reference."""


@pytest.mark.parametrize("name", FAST_PATHS)
def test_every_field_is_decided_upon(name: str) -> None:
    record, implemented, left = FAST_PATHS[name]
    assert not implemented & left
    assert {field.name for field in fields(record)} == implemented | left, f"does {name} implement the new field?"


def test_so_is_every_parameter_of_a_fleet() -> None:
    """It is no record: the timeline reads the durations, factors and plans that follow from these."""
    assert set(signature(Fleet).parameters) == {"groups", "seed", "model_bytes", "steps"}


# A field that nobody knows of yet: at its default it changes nothing, otherwise the reference takes over.


@dataclass(frozen=True, slots=True)
class NewRecipe(Recipe):
    new: int = 0


@dataclass(frozen=True, slots=True)
class NewStrategy(Strategy):
    new: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class NewLocal(Local):
    new: int | None = None


@dataclass(frozen=True, slots=True)
class NewGroup(Group):
    new: int = 0


@dataclass(frozen=True, slots=True)
class NewApply(Apply):
    new: int = 0


def fleet(group: type[Group] = Group, **options: Any) -> Fleet:
    return Fleet([group("all", 9, parse("uniform(1, 2)"), **options)], seed=0)


PLAIN = Strategy(all_idle(), count(3), uniform)


def composed(**options: Any) -> Strategy:
    return NewStrategy(PLAIN.select, PLAIN.trigger, PLAIN.weigh, **options)


def applied(**options: Any) -> Apply:
    rule = scale(0.5)
    return NewApply(rule.label, rule.init, rule.update, **options)


@pytest.mark.parametrize("compiled", [False, True])
def test_local_training_with_a_new_field_is_left_to_pytorch(compiled: bool) -> None:
    for new in (0, 1):
        design = replace(blueprint("mlp", NewRecipe(steps=1, new=new)), compiled=compiled)
        assert (design.is_batched(Local()), design.is_compiled(Local())) == (not new, not new and compiled)


def test_what_no_recipe_knows_cannot_be_asked_for() -> None:
    assert Recipe(steps=2).asked(NewLocal(prox=0.5)).prox == 0.5
    with pytest.raises(TypeError, match="new"):
        Recipe(steps=2).asked(NewLocal(new=1))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda new: (composed(new=new or 0), fleet()), "'new' of a strategy"),
        (lambda new: (replace(PLAIN, local=NewLocal(new=new)), fleet()), "Local(new=1)"),
        (lambda new: (PLAIN, fleet(NewGroup, new=new or 0)), "'new' of a client group"),
        (lambda new: (replace(PLAIN, select=replace(PLAIN.select, lag=new or 0)), fleet()), "all_idle(fresh=True)"),
        (lambda new: (replace(PLAIN, trigger=replace(PLAIN.trigger, unseen=new or 0.0)), fleet()), "count(3)"),
    ],
    ids=["strategy", "local", "group", "select", "trigger"],
)
def test_a_timeline_with_a_new_field_is_left_to_the_server(
    make: Callable[[int | None], tuple[Strategy, Fleet]], words: str
) -> None:
    assert isinstance(spec.loop_spec(*make(None)), spec.LoopSpec) and paged.known(*make(None), 650) is not None
    assert spec.loop_spec(*make(1)) == f"the loop does not implement {words}"
    assert paged.known(*make(1), 650) is None


def test_accounts_on_new_terms_are_left_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spec.spending(by_balance(reward=0.5)) is not None
    monkeypatch.setattr(spec, "TERMS", spec.TERMS - {"reward"})  # as if it were new
    assert spec.spending(by_balance(reward=0.5)) is None and spec.spending(by_balance()) is not None


def test_server_rules_with_a_new_field_are_left_to_the_simulation() -> None:
    known = [paged.known(replace(PLAIN, apply=applied(new=new)), fleet(), 650) for new in (0, 1)]
    assert known[0] is not None and known[1] is None


@pytest.mark.parametrize(
    ("options", "left"),
    [({"join": 1.0}, True), ({"leave": 9.0}, True), ({"vanish": 0.1}, True), ({"away": parse(3)}, False)],
    ids=str,
)
def test_groups_that_come_and_go_are_left_to_the_server(options: dict[str, Any], left: bool) -> None:
    assert isinstance(spec.loop_spec(zoo.fedstaleweight(buffer=3), fleet(**options)), str) == left


def test_a_field_without_a_default_must_be_implemented() -> None:
    assert other_field(Group("all", 9, parse(1)), {"count", "delay"}) == "name"


# What is listed is not ignored


BASE = Recipe(steps=3, batch=8, lr=schedule(0.1))
CHANGED: dict[str, dict[str, Any]] = {
    "steps": {"steps": 5},
    "epochs": {"steps": None, "epochs": 2},
    "batch": {"batch": 5},
    "lr": {"lr": schedule("step(0.3, every=2, factor=0.5)")},
    "momentum": {"momentum": 0.5},
    "weight_decay": {"weight_decay": 0.1},
    "prox": {"prox": 0.5},
}


def trained(design: Blueprint, local: Local = Local()) -> tuple[Vector, Report]:  # noqa: B008 (frozen)
    by, start = Learner(design, data().inputs, data().labels, PLACEMENT, local=local), first(design)
    out = np.empty_like(start)
    return out, by.train(Order(7, 1, 2), start, out)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", sorted(BATCHED - {"losses", "start_loss"}))
def test_every_field_that_is_listed_does_what_pytorch_makes_of_it(name: str, compiled: bool) -> None:
    recipe = replace(BASE, **CHANGED[name])
    design = replace(blueprint("mlp", recipe), compiled=compiled)
    assert design.is_batched(Local()) and design.is_compiled(Local()) == compiled
    found, _ = trained(design)
    plainly = trained_plainly(design, drawn(7, 1, design), recipe.lr.at(2), key=7) - first(design)
    assert found == pytest.approx(plainly, rel=1e-4, abs=1e-6)
    assert found != pytest.approx(trained(replace(design, recipe=BASE))[0], rel=1e-2)


def test_losses_are_noted() -> None:
    design = blueprint("mlp", BASE)
    for local in (Local(losses=True), Local(start_loss=True)):
        assert design.is_batched(local)
        assert trained(design)[1].loss == 0.0 < trained(design, local)[1].loss
