"""The reference page: up to date, complete, and true of what files accept."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from fairlag.data import partition, stream
from fairlag.errors import InputError
from fairlag.fleet import availability, capacity, delay, timing
from fairlag.lab.experiment import Experiment, load
from fairlag.learn import behave
from fairlag.learn.local import schedule
from fairlag.learn.within import within
from fairlag.report.reference import TABLES, WORDS
from fairlag.zoo import ALGORITHMS, fedbuff
from fairlag.zoo.defences import defended
from fairlag.zoo.parameters import PARAMETERS
from tests.support.command import Call

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "reference.md").read_text("utf-8")


def sections() -> dict[str, str]:
    """What stands under each heading."""
    parts = re.split(r"^## (.*)\n", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_page_is_what_the_code_says(call: Call) -> None:
    assert call("reference").out == PAGE, "make it anew, as its first line says"


@pytest.mark.parametrize(("name", "model"), TABLES.items(), ids=[model.__name__ for model in TABLES.values()])
def test_every_key_of_every_table_has_a_description_and_is_in_the_page(name: str, model: type[BaseModel]) -> None:
    shown = sections()[name.strip("[]").capitalize() or "The file"]
    for key, field in model.model_fields.items():
        assert field.description and field.description.endswith("."), f"{key} of {model.__name__} has no description"
        assert re.search(rf"^\| `{key}` \|.*{re.escape(field.description)} \|$", shown, re.MULTILINE), key


def test_every_table_of_a_file_is_in_the_page() -> None:
    tables = {key for key in Experiment.model_fields if key in {name.strip("[]") for name in TABLES}}
    nested = {key for key, field in Experiment.model_fields.items() if "lab." in str(field.annotation)}
    assert tables == nested


def test_every_word_is_in_the_page_and_is_accepted() -> None:
    parsers = {
        "Partitions": partition.parse,
        "Streams": stream.parse,
        "Delays": delay.parse,
        "Capacities": capacity.parse,
        "Availabilities": availability.parse,
        "Timings": timing.parse,
        "Behaviours": behave.parse,
        "Defences": lambda text: defended(fedbuff(), text),
        "Schedules": schedule,
        "Schedules within a task": within,
    }
    assert WORDS.keys() == parsers.keys()
    for heading, makers in WORDS.items():
        written = re.findall(r"^\| `(\w+)", sections()[heading], re.MULTILINE)
        assert written == [*makers]
        with pytest.raises(InputError) as refused:
            parsers[heading]("quux(1)")
        accepted = str(refused.value)
        assert all(name in accepted for name in makers), accepted


def test_every_strategy_and_parameter_is_explained() -> None:
    shown = sections()["Strategies"]
    used = {name for algorithm in ALGORITHMS.values() for name in algorithm.parameters}
    assert used == PARAMETERS.keys()
    assert all(f"\n| `{name}` | " in shown for name in (*ALGORITHMS, *used))
    assert all(meaning[-1] in ".?" for meaning in PARAMETERS.values())


@pytest.mark.parametrize("name", ["own_data", "own_model", "own_everything", "own_server_rule", "my_rules"])
def test_the_examples_that_it_names_are_there_and_can_be_read(name: str) -> None:
    assert f"(../examples/{name}.py)" in PAGE
    assert load(ROOT / "examples" / f"{name}.toml").strategies


def test_links_within_the_page_lead_somewhere() -> None:
    anchors = {heading.lower().replace(" ", "-") for heading in sections()}
    assert set(re.findall(r"\]\(#([a-z-]+)\)", PAGE)) <= anchors
    assert all((ROOT / "docs" / target).exists() for target in re.findall(r"\]\(([^#)]+)\)", PAGE))
