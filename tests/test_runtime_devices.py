"""Clients that share a device: their tasks wait for each other, in virtual time and on the wall clock alike."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlag import fit_fleet
from fairlag.analyse.audit import audit
from fairlag.core.server import Server
from fairlag.errors import InputError
from fairlag.execute.nothing import Nothing
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse as delay
from fairlag.lab.experiment import parse
from fairlag.lab.run import Run
from fairlag.runtime.compiled.spec import loop_spec
from fairlag.runtime.threads import WallClockSimulation
from fairlag.runtime.virtual import Simulation
from fairlag.zoo import fedbuff, fedstaleweight
from tests.support.edits import changed, deployed
from tests.support.experiments import tables
from tests.support.runs import runs_of

PAIRS = [
    {"group": "fast", "count": 8, "delay": "uniform(1, 2)", "per_device": 2},
    {"group": "slow", "count": 4, "delay": "uniform(8, 12)", "per_device": 2},
]


def fleet(per_device: int, count: int = 4, seed: int = 0, overhead: str | None = None) -> Fleet:
    more = None if overhead is None else delay(overhead)
    return Fleet([Group("all", count, delay("uniform(1, 2)"), overhead=more, per_device=per_device)], seed=seed)


def tasks(run: Run, device: int) -> list[tuple[float, float]]:
    """When the tasks of the device's two clients were handed out and ended, in order of their ends."""
    found = run.tasks[run.tasks["client"] // 2 == device].sort_values("ended")
    return list(zip(found["dispatched"], found["ended"], strict=True))


def test_a_device_does_one_task_after_the_other(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path / "runs", tables(PAIRS, aggregations=100))
    for device, (low, high) in {0: (1, 2), 3: (1, 2), 4: (8, 12)}.items():
        free, seen = 0.0, tasks(run, device)
        for handed_out, ended in seen:
            assert low - 1e-9 <= ended - max(free, handed_out) <= high + 1e-9
            free = ended
        assert max(ended - handed_out for handed_out, ended in seen) > high  # some really wait


def test_a_device_of_its_own_changes_nothing() -> None:
    servers = [Server(fedbuff(buffer=2), clients=4, aggregations=50) for _ in range(2)]
    for server, world in zip(
        servers, (fleet(1), Fleet([Group("all", 4, delay("uniform(1, 2)"))], seed=0)), strict=True
    ):
        Simulation(server, world).to_the_end()
    assert servers[0].view.time == servers[1].view.time


def test_a_simulation_continues_with_the_work_that_devices_still_have() -> None:
    servers = [Server(fedstaleweight(buffer=2), clients=4, aggregations=60) for _ in range(3)]
    whole, first, second = (Simulation(server, fleet(2)) for server in servers)
    whole.to_the_end()
    first.proceed(events=37)
    second.restore(first.state())
    second.to_the_end()
    assert servers[2].view.time == servers[0].view.time


@pytest.mark.parametrize(("overhead", "least"), [(None, 8), ("uniform(1, 2)", 16)])
def test_threads_wait_for_each_other_too(overhead: str | None, least: int) -> None:
    world, server = fleet(2, count=2, overhead=overhead), Server(fedbuff(buffer=1), clients=2, aggregations=8)
    with closing(WallClockSimulation(server, world, Nothing(world.steps), speed=20)) as simulation:
        simulation.to_the_end()
    # Eight tasks one after the other take at least eight seconds however busy the machine is; two at a time, some six.
    assert server.view.time >= least


def test_the_compiled_loop_leaves_shared_devices_to_the_reference() -> None:
    assert loop_spec(fedstaleweight(buffer=2), fleet(2)) == "the loop does not implement 'per_device' of a client group"


def test_closed_forms_count_the_waiting() -> None:
    assert fleet(2).mean_durations.tolist() == [3.0] * 4
    assert fleet(2, overhead="uniform(0, 1)").mean_durations.tolist() == [4.0] * 4
    found = audit(parse(tables(PAIRS, aggregations=400)), seeds=2, incentive_updates=1)[0]
    for group in found.groups:
        assert group.staleness == pytest.approx(group.staleness_predicted, rel=0.1)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"count": 7}, "per_device is 2, but count is 7, which must be a multiple of it"),
        ({"per_device": 1}, "per_device"),
        ({"availability": "alternating(10, 5)"}, "its clients would come and go apart"),
    ],
)
def test_what_a_device_cannot_be_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse(tables([{**PAIRS[0], **change}]))


def test_a_fit_finds_how_long_devices_work_without_the_waiting(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path / "runs", tables(PAIRS, aggregations=600))
    for seen in (run, deployed(changed(run))):
        fitted = fit_fleet(seen)
        assert [(table.group, table.count, table.per_device) for table in fitted.experiment.clients] == [
            ("fast", 8, 2),
            ("slow", 4, 2),
        ]
        means = [delay(table.delay).mean for table in fitted.experiment.clients]
        assert means == pytest.approx([1.5, 10], rel=0.03)
        assert "2 clients in a row are one device" in fitted.text
    (found,) = audit(fitted.experiment, seeds=3, incentive_updates=1)
    real = run.influence("group").set_index("group")
    for group in found.groups:
        assert group.staleness == pytest.approx(real.loc[group.name, "staleness"], rel=0.04)


def test_devices_that_differ_are_split_as_a_whole(tmp_path: Path) -> None:
    clients = [{"group": name, "count": 2, "delay": long, "per_device": 2} for name, long in (("a", 1), ("b", 5))]
    (run,) = runs_of(tmp_path / "runs", tables(clients, {"use": "fedbuff", "buffer": 2}, aggregations=200))
    changed(run, "UPDATE clients SET grp = 'a'", "REPLACE INTO meta VALUES ('groups', '[\"a\"]')")
    fitted = fit_fleet(deployed(changed(run)))
    assert [(each.name, each.clients) for each in fitted.groups] == [("a-0", 2), ("a-2", 2)]
    assert fitted.groups[0].fitted is not None and fitted.groups[0].fitted.mean == pytest.approx(1)


def test_only_the_beginning_of_a_run_is_fitted(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path / "runs", tables(PAIRS, aggregations=300))
    whole, part = fit_fleet(run), fit_fleet(run, until=run.virtual_time / 3)
    assert 0.2 < part.groups[0].updates / whole.groups[0].updates < 0.4
    assert "Only the tasks that ended in the first" in part.text
    np.testing.assert_allclose(part.seconds, run.virtual_time / 3)
