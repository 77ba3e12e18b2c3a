"""Whatever extras are installed, an experiment gives the same bytes; a missing or broken one is one sentence."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlag.errors import ExtraError
from fairlag.extras import optional
from fairlag.lab.folder import MODEL
from fairlag.lab.simulate import simulate
from fairlag.runtime.compiled import available

RUNS: dict[str, dict[str, Any]] = {
    "logistic": {"model": {"use": "logistic"}, "aggregations": 4000},
    "mlp": {"model": {"use": "mlp", "hidden": 8}, "aggregations": 4000},
    "cnn": {"model": {"use": "fashion_cnn"}, "aggregations": 4},
}
"""Small models for 20,000 updates: so many that compiling would pay."""

HIDE = "import sys; sys.modules['numba'] = None\n"
"""From then on, importing numba fails as if it were not installed."""


def models(folder: Path) -> dict[str, bytes]:
    """The final model of each run, made in a folder of its own."""
    tables: dict[str, Any] = {
        "name": "extras",
        "clients": [
            {"group": "fast", "count": 6, "delay": "uniform(1, 2)"},
            {"group": "slow", "count": 3, "delay": "exponential(9)"},
        ],
        "strategies": [{"use": "fedstaleweight", "buffer": 5}],
        "data": {"use": "digits"},
        "local": {"lr": 0.05, "batch": 8},
        "evaluate": {"every": 10**6, "sample": 10},
    }
    made = {name: simulate({**tables, **run}, out=folder / name, workers=1) for name, run in RUNS.items()}
    return {name: (run.folder / MODEL).read_bytes() for name, run in made.items()}


def test_numba_changes_no_byte(tmp_path: Path) -> None:
    assert available()
    here, elsewhere = models(tmp_path / "with"), tmp_path / "without"
    script = f"{HIDE}from pathlib import Path; from {__name__} import available, models\nassert not available()\n"
    script += f"models(Path({str(elsewhere)!r}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    assert {name: (elsewhere / name / MODEL).read_bytes() for name in RUNS} == here


BROKEN = {
    "raises": "raise OSError('libffi.so.9: cannot open shared object file')",
    "panics": "class Panic(BaseException): pass\nraise Panic('Python API call\\nfailed')",
    "exits": "raise SystemExit",
    "lacks": "from broken_lacks import part",
    "imports": "import no_such_package",
}
"""Packages that are installed, and what their modules do when they are imported."""

SENTENCES = {
    "raises": "which is installed but cannot be imported (libffi.so.9: cannot open shared object file): "
    "pip install --force-reinstall 'fairlag[fast]'",
    "panics": "cannot be imported (Python API call failed)",
    "exits": "cannot be imported (SystemExit)",
    "lacks": "cannot be imported (cannot import name 'part'",
    "imports": "adding needs the extra `fast`: pip install 'fairlag[fast]'",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_package_is_one_sentence(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / f"broken_{kind}"
    package.mkdir()
    (package / "__init__.py").write_text(BROKEN[kind])
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ExtraError) as refused:
        optional(package.name, "fast", "adding")
    assert SENTENCES[kind] in str(refused.value) and "\n" not in str(refused.value)


def test_ctrl_c_while_a_package_is_imported_is_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_to_import.py").write_text("raise KeyboardInterrupt")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        optional("slow_to_import", "fast", "adding")


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("cryptography", ("run", "demo", "--set", "privacy.secure=true", "--set", "privacy.bound=0.5")),
        ("cryptography", ("keeper",)),
        ("optuna", ("sweep", "demo", "--over", "lr=0.3,1", "--search", "guided", "--trials", "2")),
        ("ray", ("run", "demo", "--executor", "ray", "--address", "auto")),
        ("dp_accounting", ("audit", "demo", "--privacy", "--noise", "1", "--delta", "1e-5")),
        ("mlflow", ("run", "demo", "--track", "mlflow")),
    ],
)
def test_no_command_shows_a_traceback_of_a_broken_package(module: str, words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text("raise AttributeError('of another version')")
    ended = subprocess.run(
        [sys.executable, "-m", "fairlag", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"needs {module}, which is installed but cannot be imported (of another version)" in ended.stderr
    assert "Traceback" not in ended.stderr and ended.stderr.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir() if not each.name.startswith((module, "__"))] == []
