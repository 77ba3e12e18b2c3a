"""A model of one's own that fails is named with its file and line, wherever it is computed; --traceback shows all."""

from pathlib import Path

import pytest

from tests.support.command import caller

MODEL = """
import json

from torch import nn


class Fails(nn.Linear):
    def forward(self, inputs):
        if self.training:
            json.loads("[")
        return super().forward(inputs.flatten(1))


def fails(classes):
    return Fails(64, classes)
"""
EXPERIMENT = """
name = "own"
aggregations = 2
[data]
use = "digits"
[model]
use = "failing_model:fails"
[local]
steps = 1
[[clients]]
group = "all"
count = 2
delay = "constant(1)"
[[strategies]]
use = "fedstaleweight"
buffer = 2
"""
SENTENCE = "failed: JSONDecodeError: Expecting value: line 1 column 2 (char 1) (failing_model.py, line 10)"


@pytest.mark.parametrize("executor", ["serial", "processes"])
def test_a_failing_model_is_one_sentence(
    executor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line is the model's own, not that of the library in which it was raised."""
    (tmp_path / "failing_model.py").write_text(MODEL)
    (tmp_path / "own.toml").write_text(EXPERIMENT)
    fairlag = caller(monkeypatch, capsys)
    words = (
        "run",
        str(tmp_path / "own.toml"),
        "--executor",
        executor,
        "--workers",
        "1",
        "--out",
        str(tmp_path / "run"),
    )
    done = fairlag(*words)
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith("fairlag: task 0 of client 0 failed: ")
    assert done.err.splitlines()[-1].endswith(SENTENCE)
    assert "Traceback" not in done.err
    done = fairlag("--traceback", "resume", str(tmp_path / "run"), *words[2:6])
    assert done.code == 2
    assert "Traceback" in done.err
    assert 'json.loads("[")' in done.err
    assert "json/decoder.py" in done.err
    assert done.err.splitlines()[-1].endswith(SENTENCE)
