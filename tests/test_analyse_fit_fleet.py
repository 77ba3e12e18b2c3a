"""Fleets fitted to runs: known ones are found again, and the fitted one treats its clients as the first one did."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlag import fit_fleet
from fairlag.analyse.audit import audit
from fairlag.analyse.fit.alike import FEW, apart, spread
from fairlag.analyse.fit.observed import observed
from fairlag.errors import InputError
from fairlag.fleet.delay import parse as delay
from fairlag.lab.experiment import Experiment, parse
from fairlag.lab.run import Run
from fairlag.lab.serialise import as_tables
from tests.support.edits import changed, deployed
from tests.support.experiments import PAPER, STALE, tables
from tests.support.runs import runs_of

FEDBUFF = {"use": "fedbuff", "buffer": 5, "concurrency": 8}
MIXED = [
    {"group": "phones", "count": 20, "delay": "lognormal(10, 0.6)"},
    {"group": "desktops", "count": 10, "delay": "gamma(4, 0.5)"},
]
VANISHING = [
    {"group": "phones", "count": 20, "delay": "lognormal(10, 0.6)", "vanish": 0.1, "away": "exponential(40)"},
    {"group": "desktops", "count": 10, "delay": "uniform(1, 3)", "vanish": 0.02},
]
UNEVEN = [
    {"group": "phones", "count": 8, "delay": "mixture(0.8, uniform(2, 3), 0.2, 20)"},
    {"group": "desktops", "count": 4, "delay": "constant(4)"},
]


def agree(run: Run, experiment: Experiment, tolerance: float) -> None:
    """Share, influence and staleness of every group are those of the run."""
    (found,) = audit(experiment, seeds=3, incentive_updates=1)
    seen = run.influence("group").set_index("group")
    for group in found.groups:
        for name in ("share", "influence", "staleness"):
            assert getattr(group, name) == pytest.approx(seen.loc[group.name, name], rel=tolerance), (group.name, name)


# The run is one of 1500 aggregations: its own numbers differ between seeds by about 2 % (one standard deviation) where
# durations and absences spread as widely as here, and the fit inherits that. Narrow durations differ by less than 1 %.
@pytest.mark.parametrize("strategy", [STALE, FEDBUFF], ids=["stale", "fedbuff"])
@pytest.mark.parametrize(
    ("clients", "tolerance"),
    [(PAPER, 0.03), (MIXED, 0.06), (VANISHING, 0.08), (UNEVEN, 0.06)],
    ids=["paper", "mixed", "vanishing", "uneven"],
)
def test_the_fitted_fleet_treats_its_clients_as_the_run_did(
    tmp_path: Path, clients: list[dict[str, Any]], tolerance: float, strategy: dict[str, Any]
) -> None:
    (run,) = runs_of(tmp_path / "runs", tables(clients, strategy))
    agree(run, fit_fleet(run).experiment, tolerance)


def test_the_paper_s_fleet_is_found_again_and_its_file_is_read(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path / "runs", tables(PAPER))
    found = fit_fleet(run)
    assert [(each.name, each.family, each.clients) for each in found.groups] == [
        ("fast", "uniform", 10),
        ("slow", "uniform", 5),
    ]
    fast, slow = (delay(table.delay) for table in found.experiment.clients)
    assert [fast.quantile(1e-9), fast.quantile(1 - 1e-9)] == pytest.approx([1, 2], abs=0.005)
    assert [slow.quantile(1e-9), slow.quantile(1 - 1e-9)] == pytest.approx([8, 12], abs=0.05)
    again = parse(tomllib.loads(found.text), tmp_path)
    assert as_tables(again) == as_tables(found.experiment)
    assert (again.name, again.seed, again.aggregations) == ("fleet-fitted", 0, 1500)
    assert "# Seen: " in found.text and "Kolmogorov–Smirnov distance 0.0" in found.text
    assert "14 tasks were running at the end" in found.text


def test_a_duration_has_what_the_deployment_added(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path / "runs", tables([{**each, "overhead": "uniform(2, 4)"} for each in PAPER]))
    for seen in (run, deployed(changed(run))):
        fitted = fit_fleet(seen).experiment.clients
        assert [table.overhead for table in fitted] == [None, None]
        assert [delay(table.delay).mean for table in fitted] == pytest.approx([4.5, 13], rel=0.01)


def test_fitting_the_fitted_fleet_changes_little(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path / "first", tables(VANISHING))
    first = fit_fleet(run).experiment
    (run,) = runs_of(tmp_path / "second", as_tables(first.checked(seed=1)))
    second = fit_fleet(run).experiment
    assert second.name == first.name == "fleet-fitted"
    for one, other in zip(first.clients, second.clients, strict=True):
        # Standard errors: of a mean duration about 2 % each time, of some 150 losses 8 %.
        assert delay(other.delay).mean == pytest.approx(delay(one.delay).mean, rel=0.06)
        assert other.vanish == pytest.approx(one.vanish, rel=0.3)
        assert delay(other.away).mean == pytest.approx(delay(one.away).mean, rel=0.3)


def test_losses_and_absences(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path / "runs", tables(VANISHING))
    phones, desktops = fit_fleet(run).experiment.clients
    # Some 1600 and 6000 tasks: the standard errors of these are 0.0075 and 0.0018, of 160 absences of 40 s 3.2 s.
    assert phones.vanish == pytest.approx(0.1, abs=0.02)
    assert desktops.vanish == pytest.approx(0.02, abs=0.005)
    assert delay(phones.away).mean == pytest.approx(40, rel=0.2)
    assert delay(desktops.away).mean == pytest.approx(1, rel=0.3)  # the rest of a task of 2 s
    (remark,) = [each for each in fit_fleet(run).remarks if each.startswith("phones")]
    assert remark.endswith(f"tasks were lost (its client left: {fit_fleet(run).groups[0].lost}).")


def test_clients_that_never_come_back_are_away_for_the_whole_run(tmp_path: Path) -> None:
    clients = [{**PAPER[0], "vanish": 0.005, "away": 1e9}, {**PAPER[0], "group": "steady"}]
    (run,) = runs_of(tmp_path / "runs", tables(clients))
    leaving, _ = fit_fleet(run).experiment.clients
    assert leaving.away == pytest.approx(run.virtual_time, rel=0.01)


def test_long_tasks_are_not_under_represented_in_a_short_run(tmp_path: Path) -> None:
    clients = [{"group": "phones", "count": 1500, "delay": "lognormal(10, 0.6)"}]
    experiment = {**tables(clients), "until_time": 60.0}
    del experiment["aggregations"]
    (run,) = runs_of(tmp_path / "runs", experiment, 1)
    tasks = observed([run]).tasks
    true, seen = delay("lognormal(10, 0.6)").mean, tasks.duration[tasks.came].mean()
    assert seen < 0.92 * true  # only the short ones of those that were handed out late have ended
    # The standard error of a mean of 5000 is 1 %.
    assert delay(fit_fleet(run).experiment.clients[0].delay).mean == pytest.approx(true, rel=0.03)
    assert delay(fit_fleet(run, "empirical").experiment.clients[0].delay).mean == pytest.approx(true, rel=0.03)


def test_clients_that_differ_have_tables_of_their_own(tmp_path: Path) -> None:
    clients = [{"group": "phones", "count": 6, "delay": "uniform(2, 3)", "upload": "uniform(1, 20)"}, *PAPER]
    (run,) = runs_of(tmp_path / "runs", {**tables(clients), "model_bytes": 1_000_000})
    found = fit_fleet(run)
    assert [each.name for each in found.groups] == [*(f"phones-{client}" for client in range(6)), "fast", "slow"]
    assert "Clients of phones clearly differ" in found.groups[0].remarks[0]
    assert found.experiment.model_bytes == 0 and found.experiment.clients[0].upload is None
    (audited,) = audit(found.experiment, seeds=3, incentive_updates=1)
    seen = run.influence()
    # Each has some 300 updates: the standard error of a mean staleness is about 2 %.
    assert audited.staleness[:6] == pytest.approx(seen["staleness"][:6].to_numpy(), rel=0.06)
    assert audited.shares[:6] == pytest.approx(seen["share"][:6].to_numpy(), rel=0.06)
    together = fit_fleet(run, split=False)
    assert [each.name for each in together.groups] == ["phones", "fast", "slow"]


def test_parts_of_a_group_have_names_that_no_other_has(tmp_path: Path) -> None:
    clients = [{"group": "a", "count": 4, "delay": "uniform(2, 3)", "upload": "uniform(0.5, 20)"}]
    clients += [{**PAPER[0], "group": "a-0"}]
    (run,) = runs_of(tmp_path / "runs", {**tables(clients), "model_bytes": 1_000_000})
    assert [each.name for each in fit_fleet(run).groups] == ["a--0", "a-1", "a-2", "a-3", "a-0"]


def test_many_clients_that_differ_share_tables_by_how_long_they_take(tmp_path: Path) -> None:
    clients = [{"group": "phones", "count": 60, "delay": "uniform(2, 3)", "upload": "uniform(1, 20)"}]
    (run,) = runs_of(tmp_path / "runs", {**tables(clients), "model_bytes": 1_000_000})
    found = fit_fleet(run)
    assert 1 < len(found.groups) <= FEW
    assert sum(each.clients for each in found.groups) == 60
    means = [each.seen.mean for each in found.groups if each.seen is not None]
    assert means == sorted(means) and len(means) == len(found.groups)


def test_clients_that_are_alike_stay_together() -> None:
    generator = np.random.default_rng(0)
    clients = np.repeat(np.arange(50), 40)
    durations = np.exp(generator.normal(0, 0.5, len(clients)))
    assert not spread(clients, durations).clear
    slower = np.where(clients == 0, 2.0, 1.0) * durations
    assert spread(clients, slower).chance < 1e-6
    assert not spread(np.arange(5), np.arange(1.0, 6.0)).clear  # one duration each tells nothing
    assert not spread(np.zeros(5, np.int64), np.arange(1.0, 6.0)).clear
    assert spread(np.array([1, 1, 2, 2]), np.array([1.0, 1.0, 2.0, 2.0])).clear


def test_clients_of_a_large_group_that_take_equally_long_are_one_part() -> None:
    (part,) = apart(np.arange(30), np.arange(30), np.full(30, 2.0))
    assert (len(part.clients), part.suffix) == (30, "-1")


def test_runs_of_a_fleet_are_pooled_and_draws_that_repeat_count_once(tmp_path: Path) -> None:
    runs = runs_of(tmp_path / "runs", tables(PAPER, STALE, FEDBUFF, aggregations=100), 0, 1)
    found = fit_fleet(runs)
    assert [use.label for use in found.experiment.strategies] == [run.label for run in runs[::2]]
    rows = sum(len(run.tasks) for run in runs)
    kept = sum(each.tasks for each in found.groups)
    assert kept < rows and f"{rows - kept:,} repeated tasks are left out" in found.text
    alone = [fit_fleet([run for run in runs if run.seed == seed]) for seed in (0, 1)]
    assert kept == sum(each.tasks for one in alone for each in one.groups)
    real = fit_fleet([deployed(run) for run in runs])
    assert sum(each.tasks for each in real.groups) == rows


def test_runs_of_different_fleets_are_refused(tmp_path: Path) -> None:
    one, other = runs_of(tmp_path / "a", tables(PAPER)), runs_of(tmp_path / "b", tables(PAPER[:1]))
    with pytest.raises(InputError, match="are of different fleets: fit those of one fleet at a time"):
        fit_fleet([*one, *other])


def test_groups_that_come_late_and_leave_early(tmp_path: Path) -> None:
    clients = [{**PAPER[0], "join": 100.0}, {**PAPER[1], "leave": 300.0}, {**PAPER[0], "group": "steady"}]
    (run,) = runs_of(tmp_path / "runs", tables(clients))
    late, early, steady = fit_fleet(run).experiment.clients
    assert late.join == 100 and late.leave == np.inf
    assert early.leave == pytest.approx(300, abs=0.1)
    assert (steady.join, steady.leave) == (0, np.inf)
    assert early.vanish == 0  # what was lost by leaving is no vanishing


def test_a_known_availability_stays_and_that_of_a_real_fleet_is_what_was_seen(tmp_path: Path) -> None:
    there = "alternating(exponential(100), exponential(50))"
    (run,) = runs_of(tmp_path / "runs", tables([{**MIXED[0], "availability": there}, MIXED[1]], aggregations=600))
    simulated = fit_fleet(run).experiment.clients[0]
    assert (simulated.availability, simulated.vanish) == (there, 0)
    found = fit_fleet(deployed(run))
    real = found.experiment.clients[0]
    assert real.availability == "always" and real.vanish > 0.05
    assert delay(real.away).mean == pytest.approx(50, rel=0.4)  # some 60 absences
    assert any("not alternating" in remark for remark in found.groups[0].remarks)
    agree(run, found.experiment, 0.12)


def test_delays_per_step_where_the_strategy_asks_for_other_numbers(tmp_path: Path) -> None:
    clients = [{**table, "delay_per": "step"} for table in PAPER]
    (run,) = runs_of(tmp_path / "runs", {**tables(clients, aggregations=300), "local": {"steps": 4}})
    whole = fit_fleet(run).experiment.clients[0]
    assert whole.delay_per is None and delay(whole.delay).mean == pytest.approx(6, rel=0.02)
    changed(run, "UPDATE tasks SET steps = 8, ended = dispatched + 2 * (ended - dispatched) WHERE ordinal % 2 = 0")
    each = fit_fleet(run).experiment.clients[0]
    assert each.delay_per == "step" and delay(each.delay).mean == pytest.approx(1.5, rel=0.02)


def test_silent_clients_count_in_a_simulation_and_not_in_a_real_fleet(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path / "runs", tables(PAPER, aggregations=100))
    changed(run, "DELETE FROM tasks WHERE client IN (0, 1)")
    found = fit_fleet(run)
    assert found.groups[0].clients == 10
    assert found.groups[0].remarks == ("2 clients of fast ended no task: they are assumed to be like the others.",)
    assert fit_fleet(deployed(run)).groups[0].clients == 8


# Short runs and warm-up


def timed(folder: Path, *durations: list[float], groups: int = 1) -> Run:
    """A run in which each client made tasks of these durations, one after the other."""
    count = len(durations) // groups
    clients = [{"group": f"g{place}", "count": count, "delay": "uniform(1, 2)"} for place in range(groups)]
    rows = [
        (client, ordinal, sum(lasted[:ordinal]), sum(lasted[: ordinal + 1]))
        for client, lasted in enumerate(durations)
        for ordinal in range(len(lasted))
    ]
    (run,) = runs_of(folder, tables(clients, {"use": "fedbuff", "buffer": 1, "concurrency": 9}, aggregations=len(rows)))
    return changed(
        run,
        *(
            f"UPDATE tasks SET client = {client}, ordinal = {ordinal}, dispatched = {start}, ended = {end} "
            f"WHERE task = (SELECT task FROM tasks ORDER BY task LIMIT 1 OFFSET {place})"
            for place, (client, ordinal, start, end) in enumerate(rows)
        ),
        f"UPDATE aggregations SET time = MIN(time, {max(end for *_, end in rows)})",
    )


QUICK = [1.6, 1.75, 1.5, 1.9, 1.98, 1.7, 1.55]
OTHERS = [1.8, 1.65, 1.95, 1.52, 1.85, 1.72, 1.6]


def test_first_tasks_of_a_real_fleet_are_warm_up(tmp_path: Path) -> None:
    run = timed(tmp_path, [15.591, *QUICK], [15.593, *OTHERS])
    (group,) = fit_fleet(deployed(run)).groups
    assert group.seen is not None and group.fitted is not None
    assert (group.updates, group.counted) == (16, 12)  # the last of each was handed out too late
    assert group.seen.mean == pytest.approx(np.mean(QUICK[:-1] + OTHERS[:-1]))
    assert group.fitted.mean == pytest.approx(group.seen.mean, rel=0.05)
    assert group.remarks == (
        "The first tasks of 2 clients of g0 took 15.59 s on average, later ones 1.719 s: excluded as warm-up.",
    )
    assert group.words[1].startswith("Seen: 12 of 16 updates, mean 1.743 ")
    assert group.as_json()["counted"] == 12


def test_a_simulation_has_no_warm_up_and_durations_that_no_family_has_are_listed(tmp_path: Path) -> None:
    (group,) = fit_fleet(timed(tmp_path, [15.591, *QUICK], [15.593, *OTHERS])).groups
    assert (group.family, group.counted) == ("empirical", 16)
    assert group.seen is not None and group.seen.mean == pytest.approx(np.mean([15.591, 15.593, *QUICK, *OTHERS]))
    (remark,) = group.remarks
    assert remark == (
        "The durations of g0 are listed without a distribution: the most likely pareto distribution has a "
        "distance of 0.382, above 0.323."
    )


def test_a_family_that_was_asked_for_is_taken_and_its_failed_test_said(tmp_path: Path) -> None:
    (group,) = fit_fleet(timed(tmp_path, [15.591, *QUICK], [15.593, *OTHERS]), "normal").groups
    assert group.family == "normal"
    assert group.remarks[0].startswith("The requested family normal does not fit g0: the most likely normal ")


def test_a_little_warm_up_is_noticed_too_because_one_long_task_stretches_a_uniform_delay(tmp_path: Path) -> None:
    run = timed(tmp_path, [2.4, *QUICK], [2.3, *OTHERS])
    (group,) = fit_fleet(deployed(run)).groups
    assert group.counted == 12 and group.fitted is not None and group.fitted.quantiles[-1] < 2.05


def test_clients_with_one_task_and_wide_durations_of_few_are_no_warm_up(tmp_path: Path) -> None:
    slow = fit_fleet(deployed(timed(tmp_path / "slow", [15.6], [15.7], QUICK, OTHERS)), split=False).groups[0]
    assert slow.seen is not None and slow.seen.quantiles[-1] > 15 and "of 2 clients" in slow.words[0]
    wide = fit_fleet(deployed(timed(tmp_path / "wide", [9.0, 1.0, 4.0, 0.5, 2.0], [5.0, 3.0, 1.0, 2.0, 6.0])))
    assert not any("warm-up" in remark for remark in wide.groups[0].remarks)


def test_too_few_durations_tell_no_family(tmp_path: Path) -> None:
    (group,) = fit_fleet(deployed(timed(tmp_path, [2.0, 2.5], [2.2, 2.1]))).groups
    assert group.family == "empirical" and group.counted == 4
    assert group.remarks == (
        "The durations of g0 are listed without a distribution: 4 durations are too few to identify a distribution.",
    )


# Odd runs


def test_a_group_that_was_not_seen_is_as_the_experiment_has_it(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path / "runs", tables(PAPER, aggregations=100))
    changed(run, "DELETE FROM tasks WHERE client >= 10")
    found = fit_fleet(run)
    assert found.experiment.clients[1].delay == "uniform(8, 12)"
    assert found.groups[1].remarks == ("Updates of slow were not observed: its table is that of the run's experiment.",)
    assert not found.enough


def test_a_single_update_and_equal_ones_are_constant(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path / "runs", tables(PAPER, aggregations=100))
    changed(run, "DELETE FROM tasks WHERE client >= 10 AND task <> (SELECT MIN(task) FROM tasks WHERE client >= 10)")
    changed(run, "UPDATE tasks SET ended = dispatched + 1.5 WHERE client < 10")
    fast, slow = fit_fleet(run).experiment.clients
    assert fast.delay == "constant(1.5)" and slow.delay.startswith("constant(")


def test_updates_that_took_no_time(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path / "runs", tables(PAPER, aggregations=100))
    changed(run, "UPDATE tasks SET ended = dispatched WHERE client < 10")
    found = fit_fleet(run)
    assert found.experiment.clients[0].delay == "uniform(1, 2)"
    assert "Updates of fast took no time" in found.groups[0].remarks[0]
    changed(run, "UPDATE tasks SET ended = dispatched WHERE client = 10")
    assert fit_fleet(run).experiment.clients[1].group == "slow"


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("DELETE FROM tasks", "no task has ended"),
        ("UPDATE tasks SET outcome = 'lost'", "500 tasks ended, but no update arrived"),
    ],
)
def test_runs_with_nothing_to_fit(tmp_path: Path, statement: str, sentence: str) -> None:
    (run,) = runs_of(tmp_path / "runs", tables(PAPER, aggregations=100))
    with pytest.raises(InputError, match=f"there is nothing to fit in '.*': {sentence}"):
        fit_fleet(changed(run, statement))
