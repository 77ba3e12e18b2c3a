"""Capacities: durations by the formula, groups by the file, and a sentence for every bad row."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from fairlag.errors import InputError
from fairlag.fleet.capacity import Client, parse
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import Constant
from tests.support.traces import put


def test_a_csv_file(tmp_path: Path) -> None:
    found = parse('file("capacity.csv")', put(tmp_path))
    assert found.groups == ("phone", "desk", "watch")
    assert found.of("phone", None).clients == (
        Client("a", 0.5, 16.0, 4.0, "phone"),
        Client("b", 0.25, 16.0, 8.0, "phone"),
    )
    assert found.of("phone", 1).names == ("a",)
    assert found.has_lines and str(found) == "file('capacity.csv')"


def test_lines_and_groups_may_be_missing(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("client,seconds_per_step,up_mbps\na,2,\nb,3,8\n")
    found = parse("file('x.csv')", tmp_path)
    assert [(each.download, each.upload) for each in found.clients] == [(math.inf, math.inf), (math.inf, 8.0)]
    assert found.groups == () and found.of("anybody", None).names == ("a", "b")


def test_fedscale_takes_three_times_inference_per_example(tmp_path: Path) -> None:
    found = parse('fedscale("client_device_capacity")', put(tmp_path), batch=32)
    assert found.names == ("1", "2")
    assert found.paces == pytest.approx([3 * 32 * 0.01, 3 * 32 * 0.04])
    assert [each.download for each in found.clients] == [2.0, 0.5]
    once = parse('fedscale("client_device_capacity", factor=1)', tmp_path, batch=2)
    assert once.paces == pytest.approx([0.02, 0.08])


def test_appfl_multiplies_the_time_of_a_step(tmp_path: Path) -> None:
    found = parse('appfl("profiles.json", seconds_per_step=0.2)', put(tmp_path))
    assert found.paces == pytest.approx([0.3, 0.8])
    assert [each.upload for each in found.clients] == [8.0, math.inf]


def test_durations_are_steps_and_transfers(tmp_path: Path) -> None:
    capacity = parse('file("capacity.csv")', put(tmp_path))
    groups = [
        Group("phone", 2, Constant(1), per="step", capacity=capacity.of("phone", None)),
        Group("plain", 1, Constant(9)),
        Group("watch", 1, Constant(1), per="step", steps=7, capacity=capacity.of("watch", None)),
    ]
    fleet = Fleet(groups, seed=0, model_bytes=1_000_000, steps=4)
    expected = [4 * 0.5 + 8 / 16 + 8 / 4, 4 * 0.25 + 8 / 16 + 8 / 8, 9.0, 7 * 2 + 8 / 2 + 8 / 1]
    assert [fleet.duration(client, 3) for client in range(4)] == pytest.approx(expected)
    assert fleet.durations(np.arange(4), np.full((4, 1), 3))[:, 0].tolist() == [fleet.duration(c, 3) for c in range(4)]
    assert fleet.mean_durations == pytest.approx(expected)
    assert fleet.duration(0, 0, steps=10) == pytest.approx(5 + 2.5)


def test_a_group_of_another_size_is_refused_and_one_like_it_has_its_speeds(tmp_path: Path) -> None:
    capacity = parse('file("capacity.csv")', put(tmp_path)).of("phone", None)
    with pytest.raises(InputError, match="group 'x' has 3 clients, but its capacity has 2"):
        Group("x", 3, Constant(1), capacity=capacity)
    like = Group("x", 2, Constant(1), capacity=capacity).like([1, 1, 0], "y")
    assert like.capacity is not None
    assert (like.name, like.count, like.capacity.names) == ("y", 3, ("b", "b", "a"))


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("client,speed\na,1\n", ["no column 'seconds_per_step'", "'client,speed'"]),
        ("client,seconds_per_step\n", ["has no clients"]),
        ("client,seconds_per_step\na,0\n", ["seconds_per_step in line 2 of 'x.csv' is 0", "above 0"]),
        ("client,seconds_per_step\na,1\na,2\n", ["client in line 3", "'a'", "no other line"]),
        ("client,seconds_per_step\n,1\n", ["client in line 2"]),
        ("client,seconds_per_step,up_mbps\na,1,-3\n", ["up_mbps in line 2", "-3", "above 0"]),
        ("client,seconds_per_step,group\na,1,\n", ["group in line 2", "empty"]),
        ("client,seconds_per_step,group\na,1\n", ["line 2", "2 cells", "3"]),
    ],
)
def test_a_bad_file_is_one_sentence_with_its_line(content: str, parts: list[str], tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(InputError) as error:
        parse("file('x.csv')", tmp_path)
    assert all(part in str(error.value) for part in parts), str(error.value)


@pytest.mark.parametrize(
    ("entries", "parts"),
    [
        ([], ["one profile per client"]),
        ({"a": {"bandwidth": 1}}, ["client 'a'", "compute_factor and bandwidth"]),
        ({"a": {"compute_factor": 1}}, ["client 'a'", "compute_factor and bandwidth"]),
        ({"a": 5}, ["client 'a'", "is 5"]),
        ({"a": {"compute_factor": 0, "bandwidth": 1}}, ["compute_factor of client 'a'", "above 0"]),
        ({"a": {"delay": 1, "bandwidth": "fast"}}, ["bandwidth of client 'a'", "'fast'"]),
    ],
)
def test_a_bad_profile_is_named_by_its_client(entries: object, parts: list[str], tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(entries))
    with pytest.raises(InputError) as error:
        parse("appfl('x.json', 1)", tmp_path)
    assert all(part in str(error.value) for part in parts), str(error.value)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("capacity.csv", ["'capacity.csv'", "file name in quotes"]),
        ("5", ["'5'", 'file("capacity.csv")']),
        ("fiel('x')", ["'fiel'", "did you mean 'file'"]),
        ("file('capacity.csv', 3)", ["file(path)"]),
        ("appfl('profiles.json')", ["appfl(path, seconds_per_step)"]),
        ("appfl('capacity.csv', 1)", ["cannot be read as JSON"]),
        ("fedscale('capacity.csv')", ["cannot be read as a file of FedScale"]),
        ("fedscale('client_device_capacity', factor=0)", ["factor of fedscale is 0"]),
        ("file('nowhere.csv')", ["nowhere.csv", "cannot be opened"]),
        ("file(other('x'))", ["other('x')"]),
    ],
)
def test_a_text_that_cannot_be_read_is_one_sentence(text: str, parts: list[str], tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        parse(text, put(tmp_path))
    assert all(part in str(error.value) for part in parts), str(error.value)


def test_a_group_that_the_file_does_not_have_or_has_too_few_of(tmp_path: Path) -> None:
    found = parse('file("capacity.csv")', put(tmp_path))
    with pytest.raises(InputError, match=r"'capacity.csv' has no group 'fone': did you mean 'phone'"):
        found.of("fone", None)
    with pytest.raises(InputError, match=r"'capacity.csv' has 2 clients of group 'phone', but count is 3"):
        found.of("phone", 3)
