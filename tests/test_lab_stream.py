"""A run whose data stream, from the experiment to the model: what clients report, and the same bytes anywhere."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairlag
from fairlag.core import seeds
from fairlag.core.server import Server
from fairlag.core.types import Arrived, Command, Dispatch, Event
from fairlag.data.stream import parse as parse_stream
from fairlag.lab import timeline
from fairlag.lab.experiment import parse
from fairlag.lab.resources import Resources
from tests.support.experiments import small
from tests.support.resuming import contents

SEED = 3
heard: list[tuple[Dispatch, int, int]] = []
"""Each task that came back, the examples that its client reported, and what the server knew before of all clients'."""


class Hears(Server):
    def handle(self, event: Event) -> list[Command]:
        if isinstance(event, Arrived):
            heard.append((self.running[event.task], event.update.report.examples, int(self.view.examples.sum())))
        return super().handle(event)


def tables(use: str, stream: str) -> dict[str, Any]:
    return {
        "name": "streamed",
        "seed": SEED,
        "until_time": 25.0,
        "clients": [
            {"group": "fast", "count": 4, "delay": "uniform(1, 2)"},
            {"group": "slow", "count": 2, "delay": "uniform(4, 6)"},
        ],
        "strategies": [small(use)],
        "data": {"use": "digits", "stream": stream},
        "model": {"use": "tests.support.models:dropout_mlp"},
        "local": {"epochs": 1, "batch": 16, "lr": 0.05},
        "evaluate": {"every": 10, "sample": 100},
    }


@pytest.mark.parametrize(("use", "stream"), [("asofed", "poisson(0.1, 0.02)"), ("fedstaleweight", "linear(0.1, 0.02)")])
def test_a_streamed_run(use: str, stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "Server", Hears)
    experiment, grows = tables(use, stream), parse_stream(stream)
    setting = Resources(parse(experiment)).setting(SEED)
    made = []
    for workers in (1, 2):
        heard.clear()
        fairlag.simulate(experiment, out=tmp_path / str(workers), workers=workers)
        made.append((list(heard), contents(tmp_path / str(workers))))
    assert made[0] == made[1]
    known = np.array(setting.visible)
    assert (known < setting.examples).all()
    for task, examples, before in heard:
        key = seeds.subkey(seeds.key(SEED, "stream"), task.client)
        assert examples == grows.visible(int(setting.examples[task.client]), task.time, key)
        assert before == known.sum()
        assert examples >= known[task.client]
        known[task.client] = examples
    assert len(heard) > 50
    assert (known > 3 * setting.visible).all()
    fairlag.simulate({**experiment, "data": {"use": "digits"}}, out=tmp_path / "whole", workers=1)
    assert contents(tmp_path / "whole")["model"] != made[0][1]["model"]
