"""`fairlag report`: the page that is written, and what is refused with which sentence."""

import errno
import os
from pathlib import Path

import pytest

from tests.support.command import Call
from tests.support.damage import spoilt


@pytest.mark.parametrize("how", ["no database", "pages", "no file", "{", "[1]", '{"experiment": {}}'])
def test_a_run_that_cannot_be_read_is_named_in_a_sentence(call: Call, runs: Path, how: str) -> None:
    folder = runs / "fairshare-buffer-2-seed1"
    spoilt(folder, how)
    done = call("report", "runs", "--no-incentives")
    assert (done.code, done.out) == (0, "The report was written to report.html\n")
    assert len(done.err.splitlines()) == 1
    assert done.err.startswith("fairlag: left out: the")
    assert repr(str(folder)) in done.err
    assert "SELECT" not in done.err
    page = Path("report.html").read_text()
    assert "Left out: the" in page and str(folder) in page
    Path("report.html").unlink()
    spoilt(runs / "fairshare-buffer-2-seed0", how)
    done = call("report", "runs", "--no-incentives")
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1 and "seed0" in done.err and "seed1" in done.err
    assert not Path("report.html").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nowhere",), "there is no folder 'nowhere'"),
        (("runs", "--out", "no/x.html"), "--out is 'no/x.html', but there is no folder 'no'"),
        (("runs", "--out", "x.pdf"), "--out is 'x.pdf': the page is HTML, so its name must end with .html"),
        (("runs", "--out", "runs"), "--out is 'runs', a folder: give the name of a file"),
        (("runs", "--workers", "0"), "--workers is 0, it must be at least 1"),
    ],
)
def test_what_is_refused(call: Call, runs: Path, words: tuple[str, ...], sentence: str) -> None:
    done = call("report", *words)
    assert (done.code, done.out, done.err) == (2, "", f"fairlag: {sentence}\n")


@pytest.mark.parametrize(
    "words",
    [
        ("report", "runs", "--no-incentives", "--out", "x.html"),
        ("figure", "runs", "--kind", "influence", "--out", "x.png"),
    ],
    ids=["report", "figure"],
)
@pytest.mark.parametrize("before", [None, "what was there"])
def test_a_full_disk_leaves_no_half_of_a_file(
    call: Call, runs: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], before: str | None
) -> None:
    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    file = Path(words[-1])
    if before is not None:
        file.write_text(before)
    done = call(*words)
    assert done.code == 2
    assert done.err == f"fairlag: '{file}' cannot be written: No space left on device\n"
    assert (file.read_text() if file.exists() else None) == before and not list(Path().glob("x.*.partial"))
