"""A bundle may come from anyone: nothing in a zip file leaves its folder, or takes more than its bounds."""

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from fairlag.errors import InputError
from fairlag.lab.bundle import archive
from fairlag.lab.bundle.modules import modules
from fairlag.lab.bundle.named import files, functions, objects, perhaps_files, renamed
from fairlag.lab.folder import SUMS


def packed(file: Path, *members: tuple[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> Path:
    """A zip file of these members and their checksums, without any check."""
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in members)
    with zipfile.ZipFile(file, "w", kind) as content:
        for name, data in (*members, (SUMS, sums.encode())):
            content.writestr(zipfile.ZipInfo(name), data, kind)
    return file


def refused(file: Path, folder: Path) -> str:
    folder.mkdir()
    with pytest.raises(InputError) as error:
        archive.unpack(file, folder)
    return str(error.value)


def test_what_was_written_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"\x00" * 3_000_000)
    members: dict[str, Path | bytes] = {"b/c.txt": b"text", "a": tmp_path / "big", "empty": b""}
    archive.write(tmp_path / "x.zip", members)
    (tmp_path / "out").mkdir()
    assert archive.unpack(tmp_path / "x.zip", tmp_path / "out") == ["SHA256SUMS", "a", "b/c.txt", "empty"]
    assert (tmp_path / "out/a").read_bytes() == b"\x00" * 3_000_000
    assert (tmp_path / "out/b/c.txt").read_bytes() == b"text"
    archive.write(tmp_path / "y.zip", dict(reversed([*members.items()])))
    assert (tmp_path / "x.zip").read_bytes() == (tmp_path / "y.zip").read_bytes()


@pytest.mark.parametrize(
    "name",
    [
        *("../a", "a/../../b", "/etc/passwd", "C:a", "a\\..\\b", "~/a", "a//b", "./a", "a/", "a\nb", "a\x1bb"),
        "x" * 300,
    ],
)
def test_a_name_that_leaves_the_folder_or_confuses_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    file = packed(tmp_path / "in/x.zip", (name, b"evil"))
    assert "has a name that no bundle uses" in refused(file, tmp_path / "in/out")
    assert {each.name for each in tmp_path.rglob("*")} == {"in", "x.zip", "out"}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ([("a", b"1"), ("a", b"2")], "two of its members are called 'a'"),
        ([("a", b"1"), ("A", b"2")], "two of its members are called 'A'"),
        ([("a", b"1"), ("a/b", b"2")], "its member 'a' is a file and a folder"),
        ([("A/b", b"1"), ("a", b"2")], "its member 'a' is a file and a folder"),
    ],
)
def test_two_members_of_one_name_are_refused(tmp_path: Path, members: list[tuple[str, bytes]], sentence: str) -> None:
    assert sentence in refused(packed(tmp_path / "x.zip", *members), tmp_path / "out")


@pytest.mark.parametrize("kind", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_other_compressions_are_refused(tmp_path: Path, kind: int) -> None:
    file = packed(tmp_path / "x.zip", ("a", b"1"), kind=kind)
    assert "compressed in a way that bundles are not" in refused(file, tmp_path / "out")


def test_too_much_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = packed(tmp_path / "x.zip", ("a", b"\x00" * 5_000_000))
    assert file.stat().st_size < 10_000
    monkeypatch.setattr(archive, "MOST_BYTES", 1_000_000)
    assert "it unpacks to 5,000,068 bytes, a bundle has at most 1,000,000" in refused(file, tmp_path / "out")
    with pytest.raises(InputError, match="but it may hold 20,000 with 1,000,000: freeze fewer runs"):
        archive.write(tmp_path / "y.zip", {"a": b"\x00" * 5_000_000})
    monkeypatch.setattr(archive, "MOST_MEMBERS", 3)
    file = packed(tmp_path / "z.zip", *((str(each), b"") for each in range(3)))
    assert "it has 4 members, a bundle has at most 3" in refused(file, tmp_path / "out2")
    assert [*(tmp_path / "out").iterdir(), *(tmp_path / "out2").iterdir()] == []


def test_a_member_that_is_larger_than_it_says_is_refused(tmp_path: Path) -> None:
    file = packed(tmp_path / "x.zip", ("a", b"\x00" * 100_000))
    content = file.read_bytes()
    assert content.count((100_000).to_bytes(4, "little")) == 2  # in the header of the member and in the directory
    file.write_bytes(content.replace((100_000).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    assert "is not a bundle, or is damaged" in refused(file, tmp_path / "out")
    assert (tmp_path / "out/a").stat().st_size <= 10


def test_every_flipped_bit_and_every_cut_is_refused_or_harmless(tmp_path: Path) -> None:
    file = packed(tmp_path / "x.zip", ("a", b"some text, " * 20), ("b/c", b"1"))
    content = file.read_bytes()
    spoilt = [content[:size] for size in range(0, len(content), 7)]
    spoilt += [bytes([*content[:at], content[at] ^ 1 << at % 8, *content[at + 1 :]]) for at in range(len(content))]
    harmless = 0
    for number, each in enumerate(spoilt):
        file.write_bytes(each)
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            archive.unpack(file, folder)
        except InputError:
            continue
        harmless += 1  # a date, or a version
        assert (folder / "a").read_bytes() == b"some text, " * 20 and (folder / "b/c").read_bytes() == b"1"
    assert harmless < len(spoilt) / 2


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"", "is not a bundle, or is damaged"), (b"text", "is not a bundle, or is damaged (File is not a zip file)")],
)
def test_something_else_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "x.zip").write_bytes(content)
    assert sentence in refused(tmp_path / "x.zip", tmp_path / "out")


def test_members_that_were_added_removed_or_have_no_checksum_are_refused(tmp_path: Path) -> None:
    for number, (name, how) in enumerate((("b", "was added after it was frozen"), ("c", "is missing"))):
        file = packed(tmp_path / f"{number}.zip", ("a", b"1"), ("c", b"2"))
        with zipfile.ZipFile(file) as content:
            kept = {each: content.read(each) for each in content.namelist()}
        changed = {**kept, "b": b"3"} if name == "b" else {each: kept[each] for each in kept if each != "c"}
        with zipfile.ZipFile(file, "w") as content:
            for each, data in changed.items():
                content.writestr(each, data)
        assert refused(file, tmp_path / f"out{number}").endswith(f"its member '{name}' {how}")
    with zipfile.ZipFile(tmp_path / "none.zip", "w") as content:
        content.writestr("a", b"1")
    assert refused(tmp_path / "none.zip", tmp_path / "out").endswith("is not a bundle: it has no SHA256SUMS")


def test_a_name_that_other_systems_cannot_unpack_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the bundle would have a file called 'a:b', .*: rename it"):
        archive.write(tmp_path / "x.zip", {"a:b": b""})
    assert not [*tmp_path.iterdir()]


TABLES: dict[str, Any] = {
    "clients": [
        {"group": "trace('no.csv')", "delay": "mixture(0.5, trace('a.csv'), 0.5, 1)", "availability": "always"},
        {"group": "slow", "capacity": "fedscale('c/d.pkl', trace='e')", "availability": 'file("f.csv")'},
    ],
    "data": {"use": "file", "path": "g.csv", "test": "h.csv", "target": "y", "partition": "file('i.csv')"},
    "model": {"use": "mine:net", "weights": "j.npy", "hidden": 3},
    "task": None,
    "local": {"train": "own.train:step"},
    "strategies": [{"use": "fedbuff", "label": "x"}, {"use": "<function f>", "label": "y"}],
}


def test_what_an_experiment_names() -> None:
    assert files(TABLES) == ["a.csv", "c/d.pkl", "f.csv", "i.csv", "g.csv", "h.csv"]
    assert functions(TABLES) == ["mine:net", "own.train:step"]
    assert objects(TABLES) == ["<function f>"]
    assert perhaps_files(TABLES) == ["j.npy"]
    split = {"data": {"use": "huggingface", "path": "folder", "test": "validation"}}
    assert files(split) == ["folder"]


def test_files_get_other_names() -> None:
    found = renamed({**TABLES, "files": {"f.csv": "00"}}, {"f.csv": "outside/1/f.csv", "g.csv": "outside/2/g.csv"})
    assert found["clients"][1]["availability"] == 'file("outside/1/f.csv")'
    assert (found["data"]["path"], found["files"]) == ("outside/2/g.csv", {"outside/1/f.csv": "00"})
    assert found["clients"][0] == TABLES["clients"][0]


def test_the_source_files_of_a_module(tmp_path: Path) -> None:
    for path, text in {
        "rules/__init__.py": "",
        "rules/mine.py": "import numpy as np\nfrom . import near\nfrom .deep.er import x\nimport beside, json\n",
        "rules/near.py": "import rules.mine\n",
        "rules/unused.py": "",
        "rules/deep/er.py": "this is not Python",
        "beside.py": "",
        "json.py": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    found = modules("rules.mine", [tmp_path / "empty", tmp_path])
    expected = ["beside.py", "json.py", "rules/__init__.py", "rules/deep/er.py", "rules/mine.py", "rules/near.py"]
    assert sorted(found) == expected
    assert modules("numpy", [tmp_path]) == {}
