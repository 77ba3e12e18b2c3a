"""Writing a file: it is whole under its name, or as it was before."""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from fairlag.errors import InputError
from fairlag.files import put, save

LONG = "new " * 1000


@contextmanager
def no_room() -> Iterator[None]:
    """No file may grow past 100 bytes: a write of more stops in the middle, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def failing(where: object, name: str, error: BaseException) -> Iterator[None]:
    def fail(*_: object) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, name, fail)
        yield


FAILURES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "no room": no_room,
    "no room for the last block": lambda: failing(os, "fsync", OSError(errno.ENOSPC, "No space left on device")),
    "no new name": lambda: failing(Path, "replace", PermissionError(errno.EACCES, "Permission denied")),
    "Ctrl-C": lambda: failing(os, "fsync", KeyboardInterrupt()),
}


@pytest.mark.parametrize("before", [None, "old"])
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_write_leaves_what_was_there(tmp_path: Path, failure: str, before: str | None) -> None:
    file = tmp_path / "page.html"
    if before is not None:
        file.write_text(before)
    with FAILURES[failure](), pytest.raises((InputError, KeyboardInterrupt)) as raised:
        save(file, LONG)
    if isinstance(raised.value, InputError):
        assert str(raised.value).startswith(f"{str(file)!r} cannot be written: ")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == (
        {} if before is None else {file.name: before}
    )


def test_half_a_character_is_written_as_a_question_mark(tmp_path: Path) -> None:
    save(tmp_path / "page.html", "a\ud800b")
    assert (tmp_path / "page.html").read_text() == "a?b"


@pytest.mark.parametrize("before", [None, "old"])
def test_a_file_is_whole(tmp_path: Path, before: str | None) -> None:
    file = tmp_path / "page.html"
    if before is not None:
        file.write_text(before)
    save(file, LONG)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {file.name: LONG}


def test_a_file_keeps_its_mode_and_a_link_stays_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "page.html", tmp_path / "newest.html"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    save(link, "new")
    assert link.is_symlink() and file.read_text() == "new" and file.stat().st_mode & 0o777 == 0o640


def test_a_run_is_never_written_through_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "others.json", tmp_path / "plan.json"
    file.write_text("old")
    link.symlink_to(file)
    put(link, b"new")
    assert file.read_text() == "old" and link.read_text() == "new" and not link.is_symlink()


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    save(pipe, "new")
    assert os.read(reader, 100) == b"new" and pipe.is_fifo()
    os.close(reader)


def test_two_processes_may_write_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one begins and ends while the first has written all but the name."""
    file, replace, first = tmp_path / "page.html", Path.replace, os.getpid()

    def meanwhile(partial: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        monkeypatch.setattr(os, "getpid", lambda: first + 1)
        save(file, "the second")
        return replace(partial, target)

    monkeypatch.setattr(Path, "replace", meanwhile)
    save(file, "the first")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("page.html", "the first")]
