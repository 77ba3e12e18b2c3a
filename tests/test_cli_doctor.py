"""`fairlag doctor` as a user meets it: what the machine has, and a self-test that can fail."""

import json
from importlib import metadata
from pathlib import Path

import pytest
import torch

from fairlag.lab import machine, selftest
from tests.support.command import Call
from tests.support.devices import cards, meta_machine


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without worker processes, which take seconds to start."""
    monkeypatch.setattr(selftest, "_workers", lambda: "a run in 2 of them: same bytes as in this one")


def test_a_page_about_this_machine(call: Call, quick: None, place: Path) -> None:
    done = call("doctor")
    assert done.code == 0, done.out
    assert max(map(len, done.out.splitlines())) <= 80
    titles = ["This machine", "Devices", "Data sets", "Extras", "Self-test"]
    assert [line for line in done.out.splitlines() if line in titles] == titles
    for name in ("fairlag", "torch", "numpy", "numba"):
        assert metadata.version(name) in done.out
    assert "PyTorch finds none: models are trained on the CPU" in done.out
    assert "not found; `fairlag data get mnist` downloads it" in done.out
    assert "All 4 checks passed" in done.out


def test_the_same_as_json(call: Call, quick: None) -> None:
    found = json.loads(call("doctor", "--json").out)
    assert found["passed"] and [check["passed"] for check in found["checks"]] == [True] * 4
    assert found["machine"]["devices"][0] == {
        "name": "cpu",
        "model": torch.backends.cpu.get_cpu_capability(),
        "memory": None,
    }
    assert {"fast", "ray"} < {extra["name"] for extra in found["machine"]["extras"]}


def test_a_device_that_cannot_train_fails_and_the_others_are_still_tested(
    call: Call, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards(monkeypatch, 1)
    done = call("doctor")
    assert done.code == 1
    assert "cuda:0                 Card · 8.6 GB" in done.out
    assert "1 of 5 checks failed: training on cuda:0" in done.out


def test_a_device_that_computes_something_else_fails(call: Call, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    meta_machine(monkeypatch)
    found = json.loads(call("doctor", "--json").out)
    check = found["checks"][1]
    assert (check["name"], check["passed"]) == ("training on meta", False)
    assert "difference from the CPU: " in check["found"] and check["found"].endswith("(at most 1e-02)")
    assert [each["passed"] for each in found["checks"]] == [True, False, True, True, True]


def test_an_extra_that_is_missing_says_how_to_install_it(
    call: Call, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = metadata.version

    def version(name: str) -> str:
        if name == "ray":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    assert "ray missing: pip install 'fairlag[ray]'" in call("doctor").out


def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine._free(Path("/proc/self/runs")) is None


@pytest.mark.slow
def test_worker_processes_are_tested_too() -> None:
    assert selftest._workers() == "a run in 2 of them: same bytes as in this one"
