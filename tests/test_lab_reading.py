"""A run is read while another process writes it: the reader sees one moment, whatever the writer does meanwhile."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from fairlag.lab.folder import reading
from fairlag.lab.run import Run
from tests.support.stores import STATE, aggregation, create


def write_and_finish(folder: Path) -> None:
    """A run of a few versions; it ends when a line comes in."""
    with create(folder) as store:
        for version in range(1, 4):
            store.record(aggregation(version))
            store.commit(STATE, str(version), version)
        print("written", flush=True)
        sys.stdin.readline()
        for version in range(4, 400):
            store.record(aggregation(version))
        store.finish({"weight": np.arange(4, dtype=np.float32)}, "done")
        print("finished", flush=True)


def test_a_run_that_ends_meanwhile_still_looks_as_it_did(tmp_path: Path) -> None:
    code = f"from pathlib import Path; from {__name__} import write_and_finish; write_and_finish(Path('run'))"
    words = [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {code}"]
    with subprocess.Popen(words, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None and writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        with reading(tmp_path / "run") as database:
            print(file=writer.stdin, flush=True)
            assert writer.stdout.readline() == "finished\n"
            assert database.execute("SELECT version FROM aggregations").fetchall() == [(1,), (2,), (3,)]
            assert (tmp_path / "run/run.sqlite-wal").exists()  # the writer must not take away what is being read
    assert Run(tmp_path / "run").version == 399
