"""The notebook among the examples: kept without outputs, and executed from top to bottom in a kernel of its own."""

import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

import fairlag

NOTEBOOK = Path(__file__).parent.parent / "examples/quickstart.ipynb"


class ThisPython(AsyncKernelManager):
    """A kernel of the interpreter that runs the tests, whatever else is installed as "python3"."""

    @property
    def kernel_spec(self) -> KernelSpec:
        return KernelSpec(argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"])


def read() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]


def test_it_is_kept_without_outputs() -> None:
    nbformat.validate(read())
    code = [cell for cell in read().cells if cell.cell_type == "code"]
    assert code
    assert all(cell.execution_count is None and not cell.outputs for cell in code)


@pytest.mark.slow
def test_it_runs_and_shows_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(fairlag.__file__).parent.parent))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    notebook, here = read(), {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, kernel_manager_class=ThisPython, timeout=600, resources=here).execute()
    shown: dict[str, Any] = {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    assert [(name, output) for name in shown for output in shown[name] if output.get("name") == "stderr"] == []
    card, table, own = (alone(shown[name]) for name in ("train", "compare", "own"))
    assert "<b>Buffered FedAvg</b> on demo, seed 0: finished" in card["text/html"]
    assert "Buffered FedAvg on demo, seed 0, finished" in card["text/plain"]
    assert table["text/html"].count("2 seeds, 300 aggregations") == 3
    assert table["text/plain"].startswith("Comparison of demo, ranked by accuracy")
    assert own["text/html"].count("<svg") == 8
    assert "square_root" in own["text/html"]
    for name in ("timeline", "influence", "staleness", "curve"):
        assert len(alone(shown[name])["image/png"]) > 10_000
        assert shown[name][0].metadata["image/png"]["width"] == (340 if name == "staleness" else 700)


def alone(outputs: Any) -> Any:
    """What the only output of a cell is, in all its forms."""
    (output,) = outputs
    return output.data
