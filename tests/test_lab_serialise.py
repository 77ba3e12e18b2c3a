"""Experiments written as files: read again they are the same, whatever their names are made of."""

import json
import tomllib
from math import inf

import pytest

from fairlag.lab.experiment import load, parse, presets
from fairlag.lab.serialise import as_tables, toml, written
from tests.support.experiments import PAPER, STALE, tables


@pytest.mark.parametrize("name", presets())
def test_every_preset_reads_back(name: str) -> None:
    assert as_tables(parse(tomllib.loads(toml(load(name))))) == as_tables(load(name))


@pytest.mark.parametrize(
    "name", ['a "b"', "new\nline", "back\\slash", "ünïcode ✓", "tab\t", "\x7f", "#", "'''", '"""', "a.b"]
)
def test_names_of_any_kind(name: str) -> None:
    experiment = parse({**tables([{**PAPER[0], "group": name}], {**STALE, "label": name}), "name": name})
    text = toml(experiment, [f"about {name}"], {name: [f"beside {name}"]})
    assert as_tables(parse(tomllib.loads(text))) == as_tables(experiment)


def test_long_delays_go_over_several_lines_and_read_back() -> None:
    durations = ", ".join(f"{1 + each / 7:.5g}" for each in range(100))
    experiment = parse(tables([{**PAPER[0], "delay": f"empirical({durations})"}]))
    text = toml(experiment)
    assert max(map(len, text.splitlines())) <= 120
    assert as_tables(parse(tomllib.loads(text))) == as_tables(experiment)


def test_what_is_at_its_default_is_left_out() -> None:
    text = toml(parse({**tables(PAPER), "evaluate": {"every": 7}, "track": []}), ["One.", "Two."])
    assert text.startswith('# One.\n# Two.\nname = "fleet"\nseed = 0\naggregations = 1500\n\n[[clients]]\n')
    assert "availability" not in text and "[local]" not in text and "track" not in text
    assert text.endswith("[evaluate]\nevery = 7\nsample = 2000\n")


def test_an_infinite_parameter_is_kept() -> None:
    """An infinite default, such as `leave`, is left out; a parameter of a strategy has a default of its own."""
    experiment = parse(tables(PAPER, {"use": "fairshare", "cap": inf}))
    (table,) = (again := json.loads(written(experiment))["experiment"])["strategies"]
    assert table["cap"] == inf and "leave" not in again["clients"][0]
    assert parse(again).strategies == parse(as_tables(experiment)).strategies == experiment.strategies
