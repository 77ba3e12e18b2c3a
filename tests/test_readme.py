"""The README's commands and code run as they are printed."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from fairlag.cli import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_it_is_short_and_starts_with_the_two_commands() -> None:
    assert len(README.splitlines()) < 120
    assert re.search(r"make demo .*\n    make test ", README)


def test_the_commands_work_in_the_order_in_which_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    commands = "".join(blocks("sh")).splitlines()
    assert len(commands) >= 5
    for command in commands:
        line, _, target = command.partition(" > ")
        # Short, and in one process: what is tested is that the words are right.
        short = ["--aggregations", "30", "--workers", "1"] if line.split()[1] in ("audit", "run") else []
        short += ["--seeds", "1"] if line.split()[1] in ("audit", "run") else []
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", [*shlex.split(line), *short])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code, command
        if target:
            Path(target).write_text(capsys.readouterr().out)


def test_the_python_code_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    simulated, weighting = blocks("python")
    exec(simulated, {})
    shown = re.findall(r"^    (\w+ +fast clients .*) accuracy (.*)%$", README, re.MULTILINE)
    found = re.findall(r"^(\w+ +fast clients .*) accuracy (.*)%$", capsys.readouterr().out, re.MULTILINE)
    assert [words for words, _ in found] == [words for words, _ in shown]
    # Another processor may round differently, and 360 test examples amplify that.
    assert [float(each) for _, each in found] == pytest.approx([float(each) for _, each in shown], abs=2)
    names: dict[str, object] = {}
    exec(weighting, names)
    assert callable(names["square_root"])
