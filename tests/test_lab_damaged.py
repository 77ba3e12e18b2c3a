"""One damaged run in a folder: every command names it in a sentence and shows the others."""

import json
import re
import warnings
from pathlib import Path

import pytest

import fairlag
from fairlag.analyse.evidence import experiment_of
from fairlag.cli.report import watched
from fairlag.errors import InputError, UnreadableError
from fairlag.lab import sealed
from fairlag.lab.folder import reading
from fairlag.lab.plan import KEYS
from fairlag.lab.run import Run
from tests.support.command import Call
from tests.support.damage import BOMB, DAMAGES, ENDLESS, said
from tests.support.edits import edited


def page_of(folder: Path) -> dict[str, object]:
    with watched(folder, ("127.0.0.1", 0)) as server:
        found: dict[str, object] = json.loads(server.follower.answer().body)
    return found


@pytest.mark.parametrize("how", DAMAGES)
def test_the_others_are_shown_and_the_damaged_one_is_named(call: Call, runs: Path, how: str) -> None:
    folder = runs / "fairshare-buffer-2-seed1"
    DAMAGES[how](folder)
    page = page_of(runs)
    assert page["status"] == "1 of 1 runs finished; 1 more cannot be read"
    assert isinstance(page["lead"], list)
    assert re.search(f"Left out: the run in {str(folder)!r} (cannot be read|is damaged): ", page["lead"][-1])
    assert call("runs", "runs").code == 0


def test_every_command_that_looks_names_it(call: Call, runs: Path) -> None:
    folder = runs / "fairshare-buffer-2-seed1"
    DAMAGES["no groups"](folder)
    for words in (
        ("compare", "runs"),
        ("compare", "runs", "--json"),
        ("report", "runs", "--no-incentives"),
        ("figure", "runs", "--kind", "influence", "--out", "a.png"),
        ("fit-fleet", "runs"),
    ):
        done = call(*words)
        assert (done.code, done.err.count("\n")) == (0, 1)
        assert done.err.startswith(f"fairlag: left out: the run in {str(folder)!r} cannot be read: ")


def test_who_would_gain_is_not_asked_of_a_damaged_experiment(call: Call, runs: Path) -> None:
    for folder in runs.glob("*-seed*"):
        (folder / "experiment.json").write_text(BOMB)
    done = call("report", "runs")
    assert (done.code, done.err.count("is damaged: its experiment.json is not what was written")) == (2, 2)


def test_a_strategy_that_is_unknown_by_now_is_shown_but_not_simulated(call: Call, runs: Path) -> None:
    for folder in runs.glob("*-seed*"):
        file = folder / "experiment.json"
        file.write_text(file.read_text().replace('"fairshare"', '"fairshire"'))
        with edited(folder):
            pass
    done = call("report", "runs")
    assert (done.code, done.err) == (0, "")
    assert "was not simulated: the experiment of the run in" in Path("report.html").read_text()


def test_half_a_character_does_not_keep_a_page_from_being_written(call: Call, runs: Path) -> None:
    for folder in runs.glob("*-seed*"):
        file = folder / "experiment.json"
        file.write_text(file.read_text().replace('"fairshare"', '"fair\\ud800"'))
        with edited(folder):
            pass
    assert call("report", "runs").code == 0 and page_of(runs)["sections"]


def test_looking_needs_no_plan(runs: Path) -> None:
    (runs / "plan.json").write_text(BOMB)
    assert experiment_of(Run(runs / "fairshare-buffer-2-seed0")).name == "small"


@pytest.mark.parametrize("how", ["a bomb in meta", "no groups", "a strange group"])
def test_resume_goes_on_with_the_others_and_says_so(call: Call, runs: Path, how: str) -> None:
    DAMAGES[how](runs / "fairshare-buffer-2-seed1")
    done = call("resume", "runs")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"the run in {str(runs / 'fairshare-buffer-2-seed1')!r} cannot be read" in done.err


def test_in_python_there_is_a_warning(runs: Path) -> None:
    said("UPDATE clients SET grp = 'nobody'")(runs / "fairshare-buffer-2-seed1")
    with pytest.warns(UserWarning, match=r"left out: the run in .*seed1' cannot be read"):
        assert [each.seeds for each in fairlag.compare("runs")] == [(0,)]
    said("DELETE FROM meta")(runs / "fairshare-buffer-2-seed0")
    with pytest.warns(UserWarning, match="left out"):
        assert [run.seed for run in fairlag.runs("runs")] == [1]
    with pytest.raises(InputError, match=r"seed0.*seed1"):
        fairlag.compare("runs")


def test_a_mistake_that_is_no_damage_is_not_blamed_on_a_run(runs: Path) -> None:
    from fairlag.lab.damaged import without_damaged
    from fairlag.lab.runs import run_folders

    def make(found: list[Run]) -> None:
        if len(found) > 1:
            raise KeyError("a mistake of fairlag's own")

    with pytest.raises(KeyError):
        without_damaged(run_folders(runs), make)


def test_nothing_in_a_database_takes_for_ever(runs: Path) -> None:
    folder = runs / "fairshare-buffer-2-seed0"
    with pytest.raises(UnreadableError, match="reading it takes too long for its size"), reading(folder) as database:
        database.execute(f"{ENDLESS} SELECT COUNT(*) FROM n").fetchone()
    with pytest.raises(UnreadableError, match="attempt to write a readonly database"), reading(folder) as database:
        database.execute("DELETE FROM tasks")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(Run(folder).tasks)


def test_a_rubbish_lock_is_named(call: Call, runs: Path) -> None:
    lock = runs / "fairshare-buffer-2-seed0/lock"
    with edited(runs / "fairshare-buffer-2-seed0") as database:
        database.execute("UPDATE meta SET value = '\"running\"' WHERE key = 'status'")
    lock.write_bytes(b"rubbish" * 1000)
    assert call("runs", "runs").code == 0
    done = call("resume", "runs")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"{str(lock)!r} is not a lock of fairlag (file is not a database): remove it" in done.err


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("plan.json", BOMB, "cannot read 'runs/plan.json': it is nested more than 32 levels deep"),
        ("plan.json", '{"experiment": 3}', "'runs/plan.json' does not hold an experiment"),
        ("plan.json", "{}", "'runs/plan.json' does not hold an experiment"),
        ("plan.json", '{"experiment": {}}', "runs/plan.json: the key 'name' is missing"),
    ],
)
def test_a_damaged_plan_is_one_sentence(call: Call, runs: Path, file: str, text: str, words: str) -> None:
    (runs / file).write_text(text)
    done = call("resume", "runs")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert words in done.err
    assert call("compare", "runs").code == 0


def test_the_seeds_of_a_plan_are_whole_numbers(call: Call, runs: Path) -> None:
    sealed.write(runs / "plan.json", {**sealed.read(runs / "plan.json", KEYS), "seeds": ["x"]})
    done = call("resume", "runs")
    assert done.code == 2
    assert "the seeds in 'runs/plan.json' are ['x'], they must be a list of whole numbers" in done.err
