"""`fairlag fleet show` as a user meets it: who is there when, and how fast."""

import json
import pickle
from pathlib import Path

import pytest

from fairlag.lab.experiment import parse
from fairlag.lab.serialise import toml
from tests.support.command import Call
from tests.support.traces import put, tables


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An experiment whose fleet is read from files, in the current folder."""
    monkeypatch.chdir(put(tmp_path))
    Path("fleet.toml").write_text(toml(parse(tables(), tmp_path)))
    return Path("fleet.toml")


def row(out: str, group: str) -> list[str]:
    return next(line.split() for line in out.splitlines() if line.strip().startswith(group))


def test_a_recorded_fleet(call: Call, file: Path) -> None:
    done = call("fleet", "show", str(file), "--until", "100", "--out", "fleet.svg")
    assert done.code == 0, done.err
    assert max(len(line) for line in done.out.splitlines()) <= 80
    # Two phones, 4.5 and 2.5 s per task, there for 40 s each, never together.
    assert row(done.out, "phone")[:7] == ["phone", "2", "3.5", "3.5", "4.5", "40%", "0–1"]
    assert row(done.out, "desk")[:7] == ["desk", "1", "0.4", "0.4", "0.4", "100%", "1"]
    assert done.out.endswith("The figure is fleet.svg\n")
    drawn = Path("fleet.svg").read_text()
    assert all(words in drawn for words in ("phone", "watch", "one row per client", "time, in seconds"))


def test_the_same_as_json(call: Call, file: Path) -> None:
    found = json.loads(call("fleet", "show", str(file), "--until", "100", "--json").out)
    watch = found["groups"][2]
    assert (watch["clients"], watch["duty"], watch["mean_duration"]) == (1, 0.4, 20.0)
    there = [present for moment, present in zip(found["moments"], watch["present"], strict=True) if 10 <= moment < 50]
    assert set(there) == {1.0} and sum(watch["present"]) == len(there)


def test_a_large_fleet_is_drawn_as_lines(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = call("fleet", "show", "million", "--until", "36000", "--out", "fleet.svg")
    assert done.code == 0
    assert max(len(line) for line in done.out.splitlines()) <= 80
    assert "Of a group, 500 clients are looked at." in done.out
    drawn = Path("fleet.svg").read_text()
    assert "the part of a group's clients that is there" in drawn and "time, in hours" in drawn


def test_groups_that_join_late_and_leave(call: Call) -> None:
    late = ["--set", "clients.slow.join=25", "--set", "clients.slow.leave=75"]
    found = json.loads(call("fleet", "show", "demo", *late, "--until", "100", "--json").out)
    assert [group["duty"] for group in found["groups"]] == [1.0, 0.5]


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("presence.csv", b"client,start,end\na,0,9\nb,0,9\nc,0,9\n", ["client 'd' of group 'watch'"]),
        ("presence.csv", b"client,start,end\na,-3,9\n", ["line 2 of 'presence.csv'", "-3"]),
        ("presence.csv", b"client,start,end\na,0,9\na,5,12\n", ["line 3 of 'presence.csv'", "overlaps"]),
        ("capacity.csv", b"client,group\na,phone\n", ["no column 'seconds_per_step'"]),
        ("client_device_capacity", pickle.dumps({1: print}), ["may name a class"]),
    ],
)
def test_bad_files_are_one_sentence(call: Call, file: Path, name: str, content: bytes, parts: list[str]) -> None:
    Path(name).write_bytes(content)
    if name == "client_device_capacity":
        file.write_text(toml(parse(tables({"group": "x", "count": 1, "delay": 1}))).replace("delay = 1", _FEDSCALE))
    done = call("fleet", "show", str(file))
    assert done.code == 2 and done.out == ""
    assert len(done.err.splitlines()) == 1
    assert all(part in done.err for part in parts), done.err


_FEDSCALE = "capacity = 'fedscale(\"client_device_capacity\")'"


@pytest.mark.parametrize(("option", "value"), [("--until", "0"), ("--until", "nan"), ("--out", "fleet.txt")])
def test_bad_options_are_one_sentence(call: Call, option: str, value: str) -> None:
    done = call("fleet", "show", "demo", option, value)
    assert done.code == 2 and len(done.err.splitlines()) == 1 and value.split(".")[0] in done.err
