"""The guide to tasks: its code runs, its tables are accepted, and it names every task and metric that there is."""

import re
import tomllib
from pathlib import Path

import pytest

from fairlag.lab.experiment import load
from fairlag.learn.tasks import TASKS

PAGE = (Path(__file__).parent.parent / "docs/own-task.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    """What is written in the page itself; examples that it includes are run by `make examples`."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [block for block in found if not block.startswith("--8<--")]


def test_the_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for block in blocks("python"):
        exec(block, names)
    share = re.fullmatch(r"(\d+)% are off by less than one half", capsys.readouterr().out.splitlines()[-1])
    assert share and 40 < int(share[1]) < 70


def test_the_tables_are_accepted() -> None:
    (table,) = blocks("toml")
    assert load("diabetes").checked(**tomllib.loads(table)).task is not None


@pytest.mark.parametrize("name", TASKS)
def test_every_task_and_its_metrics_are_named(name: str) -> None:
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| `{name}` | "))
    task = TASKS[name]()
    assert re.findall(r"`(\w+)`", row)[1:] == [each.name for each in (*task.metrics, *task.others)]
