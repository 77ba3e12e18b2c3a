"""The command line as tests call it: in this process, with the output and exit code of a separate process."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from fairlag.cli import main


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


Call = Callable[..., Done]


def caller(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs `fairlag` with these arguments, without the time that a process takes to start."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["fairlag", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Done(int(ended.value.code or 0), captured.out, captured.err)

    return run
