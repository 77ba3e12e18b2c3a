"""The load tools: their arithmetic, and that they measure what is there."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from benchmarks.load.memory import experiment, measure
from benchmarks.load.readers import Reader, answers, reading
from benchmarks.load.sampled import Sample, grown, read, sampled, samples, slope, spread
from benchmarks.load.table import COLUMNS, SERVER, row
from fairlag.cli.report import watched
from fairlag.core.server import Server


def test_slopes_and_percentiles() -> None:
    assert slope([0, 1800, 3600], [10.0, 11.0, 12.0]) == pytest.approx(2.0)
    assert slope([5.0], [1.0]) == 0.0
    assert spread(range(101)) == {"median": 50.0, "95 %": 95.0, "99 %": 99.0, "max": 100.0}
    assert spread([]) == {}


def test_a_row_says_what_the_nodes_offer_and_how_busy_the_server_is() -> None:
    part = {"median": 1.0, "95 %": 2.0, "max": 3.0, "share of the time": 0.1}
    found = {"nodes": 4, "unit": 1.0, "parameters": 650, "updates/s": 0.4, "versions/s": 0.2, "cores": 0.5, "MB": 9.0}
    cells = row({**found, "late": part, "parts": dict.fromkeys(SERVER, part)})
    assert cells == "| 4 | 650 | 0.42 | 0.40 | 0.20 | 0.00, 0.00, 0.00 | 1, 2, 3 | 1.0 | 40 % | 10 % | 0.50 | 9 |"
    assert cells.count("|") == COLUMNS.count("|") + 2


def test_growth_leaves_out_the_beginning() -> None:
    made = [
        Sample(each * 60.0, "tool", 1, 3 + each, 10.0 + (each if each > 1 else 90.0), 0.5 * each) for each in range(21)
    ]
    found = grown(made)
    assert found["MB per hour"] == pytest.approx(60.0)
    assert found["cores"] == pytest.approx(0.5 / 60.0)
    assert (found["MB"], found["threads"]) == (30.0, 23)


def test_samples_are_of_a_process_and_its_children(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()", "flwr"], stdin=subprocess.PIPE)
    try:
        found = {each.role: each for each in samples(os.getpid(), 7.0)}
    finally:
        child.communicate(b"")
    assert found["tool"].seconds == 7.0 and found["tool"].megabytes > 1 and found["tool"].processor > 0
    assert sum(each.processes for role, each in found.items() if role != "tool") >= 1
    with sampled(tmp_path / "samples.csv", 60.0):
        pass
    (own,) = read(tmp_path / "samples.csv")["tool"]
    assert own.processes == 1 and own.threads >= 1


def test_answers_are_counted_by_path_and_status() -> None:
    one, two = Reader("http://127.0.0.1:1/", close=False), Reader("http://127.0.0.1:1/", close=False)
    one.asked = [("/", "200", 0.1, 500_000), ("/page.json", "304", 0.2, 0)]
    two.asked = [("/page.json", "503", 0.4, 500_000)]
    found = answers([one, two], 2.0)
    assert (found["requests/s"], found["MB/s"]) == (1.5, 0.5)
    assert found["/page.json"]["statuses"] == {"304": 1, "503": 1}
    assert found["/page.json"]["median"] == pytest.approx(300.0)
    assert found["/plotly.js"] == {"statuses": {}}


@pytest.mark.parametrize("close", [False, True])
def test_readers_read_what_is_served(tmp_path: Path, close: bool) -> None:
    with watched(tmp_path, ("127.0.0.1", 0)) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            readers = asyncio.run(reading(server.address, 3, 1.0, 0.2, close=close))
        finally:
            server.shutdown()
    found = answers(readers, 1.0)
    assert found["/"]["statuses"] == {"200": 3}
    assert found["/page.json"]["statuses"]["200"] == 3 and found["/page.json"]["statuses"].keys() <= {"200", "304"}


def test_a_deployment_in_memory_is_measured(tmp_path: Path) -> None:
    handle = Server.handle
    found = measure(tmp_path, nodes=8, seconds=3.0, unit=0.02, parameters=650, buffer=2)
    assert Server.handle is handle  # it is no longer timed
    assert found["updates"] >= 2 * found["versions"] > 0
    assert found["parts"]["unpack"]["calls"] == found["updates"]
    assert found["parts"]["handle: with a version"]["calls"] == found["versions"]
    assert 0 <= found["late"]["median"] <= found["late"]["max"]
    assert found["MB"] > 1 and found["run directory, MB"] > 0


def test_models_have_about_the_parameters_asked_for() -> None:
    hidden = experiment(4, 1.0, 1.0, 500_000, 2)["model"]["hidden"]
    assert abs(64 * hidden + hidden + 10 * hidden + 10 - 500_000) < 75
