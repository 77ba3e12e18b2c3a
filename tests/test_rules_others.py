"""The other slots: admission, edits, reductions and the traits of rules, with exact numbers."""

import math
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from fairlag import zoo
from fairlag.core.ledger import Ledger
from fairlag.core.types import NOTHING, Dispatch, Report, Update
from fairlag.core.view import View
from fairlag.errors import StrategyError
from fairlag.rules import admit, edit, reads_updates, reduce, weigh
from fairlag.rules.rule import Traits, reads_profiles, traits
from fairlag.rules.utility import Credit
from tests.support.scenes import Scene, vec


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (Update(vec(1)), "the shape is not (2,)"),
        (Update(vec(1, 2, 3)), "the shape is not (2,)"),
        (Update(vec(1, 2).reshape(1, 2)), "the shape is not (2,)"),
        (Update(np.zeros(2)), "the dtype is not float32"),  # type: ignore[arg-type]
        (Update(np.zeros(2, np.int32)), "the dtype is not float32"),
        (Update(np.zeros(2, ">f4")), "the dtype is not float32"),
        (Update([1.0, 2.0]), "not an array"),  # type: ignore[arg-type]
        (Update(None), "not an array"),  # type: ignore[arg-type]
        (Update(vec(1, np.nan)), "not finite"),
        (Update(vec(np.inf, 1)), "not finite"),
        (Update(vec(np.inf, -np.inf)), "not finite"),
        (Update(vec(1, np.nan), Report(loss=math.nan)), "not finite"),
        (Update(vec(1, 2), Report(0)), "the number of examples is not an int between 1 and 9007199254740992"),
        (Update(vec(1, 2), Report(-3)), "the number of examples is not an int between 1 and 9007199254740992"),
        (Update(vec(1, 2), Report(2.5)), "the number of examples is not an int between 1 and 9007199254740992"),  # type: ignore[arg-type]
        (Update(vec(1, 2), Report(True)), "the number of examples is not an int between 1 and 9007199254740992"),
        (Update(vec(1, 2), Report(2**63)), "the number of examples is not an int between 1 and 9007199254740992"),
        (Update(vec(1, 2), Report(steps=0)), "the number of steps is not an int between 1 and 9007199254740992"),
        (Update(vec(1, 2), Report(steps=-1)), "the number of steps is not an int between 1 and 9007199254740992"),
        (Update(vec(1, 2), Report(steps=1.0)), "the number of steps is not an int between 1 and"),  # type: ignore[arg-type]
        (Update(vec(1, 2), Report(steps=True)), "the number of steps is not an int between 1 and"),
        (Update(vec(1, 2), Report(effort=math.nan)), "the effort is not a finite float of at least 2.2"),
        (Update(vec(1, 2), Report(effort=math.inf)), "the effort is not a finite float of at least 2.2"),
        (Update(vec(1, 2), Report(effort=0.0)), "the effort is not a finite float of at least 2.2"),
        (Update(vec(1, 2), Report(effort=5e-324)), "the effort is not a finite float of at least 2.2"),
        (Update(vec(1, 2), Report(effort=-2.0)), "the effort is not a finite float of at least 2.2"),
        (Update(vec(1, 2), Report(effort=2)), "the effort is not a finite float of at least 2.2"),
        (Update(vec(1, 2), Report(effort=np.float64(2))), "the effort is not a finite float of at least 2.2"),
        (Update(vec(1, 2), Report(effort="2")), "the effort is not a finite float of"),  # type: ignore[arg-type]
        (Update(vec(1, 2), Report(loss=math.nan)), "the loss is not a finite float of at least 0.0"),
        (Update(vec(1, 2), Report(loss=math.inf)), "the loss is not a finite float of at least 0.0"),
        (Update(vec(1, 2), Report(loss=-1e-9)), "the loss is not a finite float of at least 0.0"),
        (Update(vec(1, 2), Report(loss=None)), "the loss is not a finite float of at least 0.0"),  # type: ignore[arg-type]
        (Update(vec(1, 2), (1, 1, 1.0, 0.0)), "not a report"),  # type: ignore[arg-type]
    ],
)
def test_a_malformed_update_is_described(update: Update, reason: str) -> None:
    assert str(admit.well_formed(update, 2)).startswith(reason)


def test_reports_that_cannot_be_true_are_refused_and_counted_by_their_reasons() -> None:
    scene = Scene(zoo.pisces(concurrency=2), 2, parameters=vec(0))
    scene.arrive(0, 1, steps=0)
    scene.arrive(0, 1, steps=-7)
    scene.arrive(0, 1, effort=math.nan)
    scene.arrive(1, 1, loss=-1.0)
    scene.arrive(1, 1, loss=math.nan)
    scene.arrive(0, 1, loss=-2.0)
    assert scene.server.refusals == {
        "the number of steps is not an int between 1 and 9007199254740992": 2,
        "the effort is not a finite float of at least 2.2250738585072014e-308": 1,
        "the loss is not a finite float of at least 0.0": 3,
    }
    assert scene.server.counts["refused"] == 6 and scene.server.view.running == 2
    assert scene.server.view.losses.tolist() == [0.0, 0.0] and scene.server.view.version == 0


def test_a_mask_does_not_hide_what_is_not_finite() -> None:
    masked = np.ma.masked_array(vec(1, np.nan), [False, True])
    assert admit.well_formed(Update(masked), 2) is not None


@pytest.mark.parametrize(
    "update",
    [
        Update(vec(1, 2)),
        Update(vec(3e38, 3e38), Report(10)),
        Update(vec(-3e38, -3e38)),
        Update(vec(0, -0.0), Report(2**53)),
        Update(vec(0, 1), Report(1, 2**53, 1e300, 0.0)),
        Update(vec(0, 1), Report(1, 1, 1e-300, 1e300)),
    ],
)
def test_a_well_formed_update_has_nothing_against_it(update: Update) -> None:
    assert admit.well_formed(update, 2) is None


def test_a_model_without_parameters_takes_empty_updates_only() -> None:
    assert admit.well_formed(NOTHING, 0) is None
    assert admit.well_formed(Update(vec(1)), 0) == "the shape is not (0,)"


def task(version: int) -> Dispatch:
    return Dispatch(task=0, client=0, version=version, ordinal=0, time=0.0)


def test_the_largest_admitted_staleness_is_still_admitted() -> None:
    ledger = Ledger()
    ledger.version = 9
    rule, view = admit.max_staleness(3), View(ledger)
    assert [rule(NOTHING, task(version), view) for version in (9, 6, 5)] == [None, None, "staler than 3"]


def test_the_first_refusal_counts() -> None:
    ledger = Ledger()
    ledger.version = 9
    rule = admit.all_of(admit.max_staleness(5), admit.max_staleness(3))
    reasons = [rule(NOTHING, task(version), View(ledger)) for version in (6, 5, 3)]
    assert reasons == [None, "staler than 3", "staler than 5"]


def test_clipping_shortens_the_long_and_leaves_the_short() -> None:
    updates = np.array([[3, 4], [0.3, 0.4], [0, 0]], np.float32)
    clipped = edit.clip(1.0)(updates, *weigh.example())
    assert clipped.dtype == np.float32 and clipped == pytest.approx(np.array([[0.6, 0.8], [0.3, 0.4], [0, 0]]))
    assert updates[0].tolist() == [3, 4]


def test_edits_go_in_turn() -> None:
    def double(updates: np.ndarray, buffer: object, view: object) -> np.ndarray:
        return updates * 2

    updates = np.array([[0, 8]], np.float32)
    assert edit.in_turn(edit.clip(1.0), double)(updates, *weigh.example()).tolist() == [[0, 2]]
    assert edit.in_turn(double, edit.clip(1.0))(updates, *weigh.example()).tolist() == [[0, 1]]


def test_a_weighted_sum_is_the_sum() -> None:
    updates = np.array([[1, 2, 3], [10, 20, 30]], np.float32)
    step = reduce.weighted_sum(np.array([2.0, 0.5]), updates)
    assert step.tolist() == [7, 14, 21] and step.dtype == np.float32


def test_a_trimmed_mean_cuts_each_coordinate_by_itself() -> None:
    updates = np.array([[1, 900], [2, 2], [3, 3], [-900, 4]], np.float32)
    assert reduce.trimmed_mean(0.25)(np.full(4, 0.25), updates).tolist() == [1.5, 3.5]
    assert reduce.trimmed_mean(0.25)(np.full(4, 0.5), updates).tolist() == [3.0, 7.0]
    assert reduce.trimmed_mean(0.0)(np.full(4, 0.25), updates).tolist() == [-223.5, 227.25]


def test_other_options_out_of_range_are_refused() -> None:
    with pytest.raises(StrategyError, match="staleness is -1, it must be at least 0"):
        admit.max_staleness(-1)
    for norm in (0.0, -2.0, math.nan):
        with pytest.raises(StrategyError, match=f"length of an update is {norm}, it must be positive"):
            edit.clip(norm)
    for share in (-0.1, 0.5, math.nan):
        with pytest.raises(StrategyError, match=f"trimmed share is {share}, it must be at least 0 and below"):
            reduce.trimmed_mean(share)


def test_a_plain_function_is_known_by_its_name() -> None:
    def mine(buffer: object, view: object) -> None: ...

    assert traits(mine) == Traits("mine") and not traits(mine).reads_updates


def test_labels_write_the_call_that_made_a_rule() -> None:
    rule = weigh.capped(weigh.normalised(weigh.mean_staleness(scale=5, window=3)), None)
    assert traits(rule).label == "capped(normalised(mean_staleness(scale=5, window=3)), None)"
    assert traits(rule).window == 3


def test_rules_that_look_at_single_updates_say_so() -> None:
    assert traits(edit.clip(1.0)).reads_updates and traits(reduce.trimmed_mean(0.1)).reads_updates
    assert traits(edit.in_turn(edit.clip(1.0))).reads_updates
    assert not traits(reduce.weighted_sum).reads_updates and not traits(admit.max_staleness(1)).reads_updates


def test_a_declaration_keeps_the_label_and_the_window() -> None:
    rule = reads_updates(weigh.mean_staleness(window=4))
    assert traits(rule) == Traits("mean_staleness(window=4)", True, 4)


def test_a_strategy_knows_the_slots_that_look_at_single_updates() -> None:
    strategy = replace(zoo.fedstaleweight(), edit=edit.clip(1.0), reduce=reduce.trimmed_mean(0.1))
    assert strategy.readers == ("edit", "reduce")


def test_the_sum_has_the_same_bits_with_any_number_of_threads() -> None:
    """A product of matrices would not: the linear algebra library splits it among its threads."""
    code = (
        "import hashlib, numpy as np; from fairlag.rules.reduce import weighted_sum; r = np.random.default_rng(0);"
        "step = weighted_sum(r.random(5), r.standard_normal((5, 421642), np.float32));"
        "print(hashlib.md5(step.tobytes()).hexdigest())"
    )
    bits = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "OPENBLAS_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2")
    }
    assert len(bits) == 1


def test_an_outlier_is_what_dbscan_leaves_out_of_every_cluster() -> None:
    from sklearn.cluster import DBSCAN  # type: ignore[import-untyped]

    chance, found = np.random.default_rng(0), set[bool]()
    for _ in range(100):
        losses = chance.normal(0, 1.5, chance.integers(5, 30))
        expected = DBSCAN(eps=0.5, min_samples=5).fit_predict(losses[:, None]) == -1
        assert [Credit().outlier(losses.tolist(), place) for place in range(len(losses))] == expected.tolist()
        found |= set(expected.tolist())
    assert found == {True, False}


def test_a_rule_of_any_slot_may_ask_for_profiles() -> None:
    @reads_profiles
    def patient(update: Update, task: Dispatch, view: View) -> str | None:
        return None

    plain = zoo.buffered_fedavg()
    assert replace(plain, admit=patient).profiles and not plain.profiles
