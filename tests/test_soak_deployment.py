"""The checks of the soak of a deployment: a true record passes all of them, and each finds the false ones it is for."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlag.lab.checkpoints import found
from fairlag.lab.deploy import deploy
from fairlag.lab.events import Event, Kept
from tests.support import processes
from tests.support.books import CHECKS, Books
from tests.support.deployed import Record, read
from tests.support.faults import CALM, HOURLY, SERVER, drawn
from tests.support.flower_deploy import OWN, QUICK, Crash, counted
from tests.support.growth import slopes
from tests.support.patience import wait_until

FAIR: dict[str, Any] = {**OWN, "aggregations": 40, "strategies": [{"use": "fairshare", "buffer": 2}]}
HOW: dict[str, Any] = {**QUICK, "arrays": {"weight": np.ones((2, 2), np.float32)}}
NODES = {client: ("fast" if client < 2 else "slow", 5) for client in range(4)}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, Record]:
    """The record of a deployment whose process was killed at version 25, and of its end after a restart."""
    out = tmp_path_factory.mktemp("deployed") / "run"

    def crash(event: Event) -> None:
        if isinstance(event, Kept) and event.version == 25:
            raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fairlag.runtime.flower.courier._MAX_PER_SECOND", 2_000.0)
        with pytest.raises(Crash):
            deploy(counted(), FAIR, out=out, watch=crash, **HOW)
        before = read(out)
        deploy(counted(), FAIR, out=out, **HOW)
    return before, read(out)


def test_a_true_record_passes_all_checks(killed: tuple[Record, Record]) -> None:
    books = Books(NODES)
    assert [record.version for record in killed] == [25, 40]
    assert [books.look(record) for record in killed] == [[], []]
    assert books.looks == 2 and len(books.memories) == 2


def _task(record: Record, number: int, **values: Any) -> Record:
    """The record with other values in the row of a task."""
    return record._replace(tasks={**record.tasks, number: record.tasks[number]._replace(**values)})


def _version(record: Record, version: int, **values: Any) -> Record:
    """The record with other values in the row of a version."""
    rows = record.aggregations
    return record._replace(aggregations={**rows, version: rows[version]._replace(**values)})


def _without_versions(record: Record, *versions: int) -> Record:
    return record._replace(
        aggregations={version: row for version, row in record.aggregations.items() if version not in versions}
    )


def _without_task(record: Record, number: int) -> Record:
    return record._replace(tasks={each: row for each, row in record.tasks.items() if each != number})


def _remembers(record: Record, **values: Any) -> Record:
    return record._replace(memory=record.memory._replace(**values))


def _more(values: tuple[Any, ...], by: float) -> tuple[Any, ...]:
    return (values[0] + by, *values[1:])


def _merged(record: Record, **wanted: Any) -> int:
    """The number of a merged task with these values."""
    return next(
        number
        for number, task in record.tasks.items()
        if task.aggregation is not None and all(getattr(task, name) == value for name, value in wanted.items())
    )


def _again(record: Record) -> Record:
    """One task is counted a second time under another number."""
    number = _merged(record)
    return record._replace(tasks={**record.tasks, 10**6: record.tasks[number]})


def _stranger(record: Record) -> Record:
    return record._replace(clients={**record.clients, 4: ("fast", 5)})


FALSE: list[tuple[str, Callable[[Record], Record]]] = [
    ("versions", lambda record: _without_versions(record, *range(20, 41))),
    ("versions", lambda record: _without_versions(record, 30)),
    ("rows", lambda record: _version(record, 7, time=0.0)),
    ("rows", lambda record: _task(record, _merged(record, aggregation=3), weight=0.123)),
    ("rows", lambda record: _without_task(record, _merged(record, aggregation=3))),
    ("versions and tasks", lambda record: _without_task(record, _merged(record, aggregation=38))),
    ("versions and tasks", lambda record: _task(record, _merged(record, aggregation=38), weight=9.0)),
    ("versions and tasks", lambda record: _version(record, 38, refused="too large")),
    ("staleness", lambda record: _task(record, _merged(record, aggregation=38), staleness=30)),
    ("staleness", lambda record: _task(record, _merged(record, aggregation=38), version=1, staleness=36)),
    ("memory", lambda record: _remembers(record, updates=_more(record.memory.updates, -1))),
    ("memory", lambda record: _remembers(record, staleness=_more(record.memory.staleness, 1))),
    ("memory", lambda record: _remembers(record, version=39)),
    ("memory", lambda record: _remembers(record, damage="not what was written")),
    ("accounts", lambda record: _remembers(record, held=_more(record.memory.held, 0.5))),
    ("accounts", lambda record: _remembers(record, held=_more(record.memory.held, -9.0))),
    ("accounts", lambda record: _remembers(record, spent=_more(record.memory.spent, -0.5))),
    ("accounts", lambda record: record._replace(presence=record.presence[1:])),
    ("accounts kept", lambda record: _remembers(record, spent=(0.0,) * 4)),
    ("accounts kept", lambda record: _remembers(record, updates=(0,) * 4)),
    ("clients", _stranger),
    ("clients", lambda record: record._replace(clients={**record.clients, 0: ("slow", 5)})),
    ("clients", lambda record: _task(record, _merged(record, aggregation=38), client=4)),
    ("ordinals", _again),
    ("counts", lambda record: _remembers(record, counts={**record.memory.counts, "dispatched": 0})),
    ("counts", lambda record: _remembers(record, counts={**record.memory.counts, "lost": 9, "running": -9})),
    ("refusals", lambda record: _task(record, _merged(record), outcome="refused", reason="malformed")),
    ("refusals", lambda record: _task(record, _merged(record), outcome="refused", reason="quarantine")),
]


@pytest.mark.parametrize(("check", "forged"), FALSE)
def test_a_false_record_is_found(killed: tuple[Record, Record], check: str, forged: Callable[[Record], Record]) -> None:
    books = Books(NODES)
    before, after = killed
    assert not books.look(before)
    assert any(said.startswith(f"{check}: ") for said in books.look(forged(after)))


def test_each_check_is_tried() -> None:
    assert {check for check, _ in FALSE} == set(CHECKS)


def test_a_damaged_checkpoint_is_found(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fairlag.runtime.flower.courier._MAX_PER_SECOND", 2_000.0)
        run = deploy(counted(), {**FAIR, "aggregations": 3}, out=tmp_path / "run", **HOW)
    newest = found(run.folder)[0].file
    content = bytearray(newest.read_bytes())
    content[-1] ^= 1  # in the arrays, which safetensors does not check
    newest.write_bytes(content)
    said = Books(NODES).look(read(run.folder))
    assert said == ["memory: the checkpoint of version 3 is not what was written"]


def test_one_seed_draws_all_faults() -> None:
    faults = drawn(7, 7200.0)
    assert faults == drawn(7, 7200.0) != drawn(8, 7200.0)
    assert {fault.kind for fault in faults} == set(HOURLY)
    assert all(360 <= fault.at <= 7020 for fault in faults)
    calm = [fault.kind for fault in faults if CALM[0] * 7200 < fault.at < CALM[1] * 7200]
    assert calm and not set(calm) & set(SERVER) and (CALM[1] - CALM[0]) * 120 > 35


def test_memory_is_judged_by_a_line_through_its_measurements(tmp_path: Path) -> None:
    file = tmp_path / "memory.csv"
    assert slopes(file) == []
    rows = [f"{at},serverapp,7,99,98,{50 + at / 600 + (at < 300) * 20}" for at in range(0, 3600, 30)]
    rows += [f"{at},superlink,8,80,70,60" for at in range(0, 600, 30)]  # it was killed too soon
    file.write_text("\n".join(rows))
    (only,) = slopes(file)
    assert (only["process"], only["pid"], only["MB per hour"]) == ("serverapp", 7, pytest.approx(6.0))


def test_processes_are_found_by_their_environment_with_all_that_they_started() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'], check=False)"
    mark = {"FLWR_HOME": f"soak-{os.getpid()}"}
    parent = subprocess.Popen([sys.executable, "-c", code], env=os.environ | mark, stdin=subprocess.PIPE)
    try:
        name = f"FLWR_HOME={mark['FLWR_HOME']}"
        wait_until(lambda: len(processes.found(name)) == 2, "both processes")
        tree = processes.below(processes.found(name), parent.pid)
        assert len(tree) == 2 and {each.role for each in tree} == {"other"}
        held = processes.memory(parent.pid)
        assert held is not None and 0 < held.own <= held.proportional <= held.resident
        processes.send(signal.SIGKILL, tree)
        wait_until(lambda: not processes.found(name), "their end")
    finally:
        parent.kill()
        parent.communicate()
    assert processes.memory(parent.pid) is None
