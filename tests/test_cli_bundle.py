"""`fairlag freeze` and `fairlag verify`: a bundle repeats elsewhere, and whatever was changed in it is found."""

import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from fairlag.errors import FairlagError
from fairlag.lab.bundle import archive
from fairlag.lab.bundle import home as collecting
from fairlag.lab.folder import DATABASE, SUMS
from fairlag.lab.run import Run
from tests.support.bundles import bundled, experiment_in, forget, made, opened, with_seed
from tests.support.command import Call, Done
from tests.support.edits import deployed
from tests.support.sweeps import BUFFERED, swept
from tests.support.sweeps import made as made_sweep

MINE, FEDAVG = "runs/points/mine-seed0", "runs/points/fedavg-seed0"


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle whose runs, code and data are no longer where they were."""
    folder = tmp_path_factory.mktemp("frozen")
    made(experiment_in(folder / "here"), folder / "out", 0, 1)
    bundled(folder / "points.zip", folder / "out")
    (folder / "here").rename(folder / "moved")
    (folder / "out").rename(folder / "moved/out")
    return folder / "points.zip"


@pytest.fixture
def bundle(frozen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in the current folder."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copy(frozen, tmp_path / "points.zip"))


def verified(call: Call, bundle: str, *options: str) -> Done:
    """`fairlag verify` without worker processes: to start them takes longer than to repeat such small runs."""
    return call("verify", bundle, "--workers", "1", *options)


def test_a_bundle_repeats_elsewhere(call: Call, bundle: Path) -> None:
    done = verified(call, "points.zip")
    assert (done.code, done.out.splitlines()) == (
        0,
        [
            "points.zip: every file has its checksum; 4 runs",
            "Versions, system and processor are the same as there",
            "The tables follow from the runs in the bundle",
            "Mine, seed 0: the same bytes: aggregations 1 to 20 of 40, 6 versions evaluated",
            "FedAvg, seed 0: the same bytes: aggregations 1 to 20 of 40, 6 versions evaluated",
            "The same: 2 of 2 repeated runs agree in every byte; 2 of 4 runs were not repeated",
        ],
    )
    assert done.err.splitlines() == [
        "Mine, seed 0: repeating aggregations 1 to 20 of 40",
        "fairlag: importing the module 'rule_of_mine' for the strategy 'rule_of_mine:rule'",
        "FedAvg, seed 0: repeating aggregations 1 to 20 of 40",
    ]
    done = verified(call, "points.zip", "--whole")
    assert done.code == 0
    assert "Mine, seed 1: the same bytes: all 40 aggregations to its end, 11 versions evaluated\n" in done.out
    assert done.out.endswith("The same: 4 of 4 repeated runs agree in every byte\n")


def test_how_much_is_repeated(call: Call, bundle: Path) -> None:
    done = verified(call, "points.zip", "--aggregations", "5", "--runs", "2")
    assert done.out.count("the same bytes: aggregations 1 to 5 of 40, 2 versions evaluated") == 4


def sql(statement: str, run: str = MINE) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        with closing(sqlite3.connect(folder / run / DATABASE)) as database, database:
            assert database.execute(statement).rowcount

    return change


def text(path: str, before: str, after: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / path
        found = file.read_text()
        assert before in found
        file.write_text(found.replace(before, after, 1))

    return change


@pytest.mark.parametrize(
    ("change", "sentence", "whole"),
    [
        (
            sql("UPDATE tasks SET weight = 0.25 WHERE aggregation = 7"),
            "from aggregation 7: weight of tasks (task ",
            False,
        ),
        (sql("UPDATE tasks SET client = 5 WHERE aggregation = 7"), "from aggregation 7: client of tasks (task ", False),
        (sql("UPDATE tasks SET staleness = 9 WHERE aggregation = 9"), "from aggregation 9: staleness of tasks", False),
        (
            sql("UPDATE aggregations SET time = time + 1 WHERE version = 3"),
            "from aggregation 3: time of aggregations is ",
            False,
        ),
        (
            sql("UPDATE evaluations SET value = value + 1e-15 WHERE version = 8 AND metric = 'loss'"),
            "from aggregation 8: value of evaluations (scope all, metric loss, whole 0) is ",
            False,
        ),
        (
            sql("DELETE FROM evaluations WHERE version = 8"),
            "from aggregation 8: a row of evaluations (version 8, scope all, metric accuracy, whole 0) is only here",
            False,
        ),
        (sql("UPDATE evaluations SET value = 1 WHERE version = 40"), "from aggregation 40: value of", True),
        (
            sql("""UPDATE meta SET value = '"00"' WHERE key = 'model_sha256'"""),
            "from aggregation 40: the model_sha256 of the run is '00' there and ",
            True,
        ),
        (
            sql("INSERT INTO refusals VALUES ('too old', 3)"),
            "from aggregation 40: a row of refusals (version 40, reason too old) is only there, not here",
            True,
        ),
        (text("files/points/points.csv", "0.", "1."), "its data has the checksum ", False),
        (text("files/points/delays.csv", "9", "9.5"), "from aggregation ", False),
        (text("files/points/rule_of_mine.py", "1 + ", "2 + "), "weight of tasks (task ", False),
        (text("files/points/helper_of_mine.py", "-0.5", "-0.6"), "weight of tasks (task ", False),
        (lambda folder: with_seed(folder / MINE, 3), "from ", False),
    ],
)
def test_a_change_is_found_though_checksums_fit(
    call: Call, bundle: Path, tmp_path: Path, change: Callable[[Path], None], sentence: str, whole: bool
) -> None:
    with opened(bundle, tmp_path / "open") as folder:
        change(folder)
    done = verified(call, "points.zip", *(["--whole", "--runs", "1"] if whole else []))
    assert done.code == 1, done.err
    assert "Mine, seed 0: DIFFERENT: " in done.out and sentence in done.out
    assert "repeated runs differ from the bundle" in done.out


def test_tables_that_do_not_follow_from_the_runs_are_found(call: Call, bundle: Path, tmp_path: Path) -> None:
    with opened(bundle, tmp_path / "open") as folder:
        text("tables/comparison.csv", ",40.0,", ",41.0,")(folder)
    done = verified(call, "points.zip", "--aggregations", "1")
    assert done.code == 1
    assert "tables/comparison.csv: DIFFERENT: it does not follow from the runs in the bundle\n" in done.out
    assert "\nDIFFERENT: the tables do not follow from the runs in the bundle; 0 of 2 repeated runs differ" in done.out


def test_a_damaged_record_is_named_by_its_place_in_the_bundle(call: Call, bundle: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(bundle) as content:
        content.extractall(tmp_path / "open")
    sql("UPDATE evaluations SET value = value + 1")(tmp_path / "open")  # but not the digests of the rows
    files = [file for file in (tmp_path / "open").rglob("*") if file.is_file() and file.name != SUMS]
    archive.write(bundle, {file.relative_to(tmp_path / "open").as_posix(): file for file in files})
    done = verified(call, "points.zip")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"fairlag: 'points.zip': the run in '{MINE}' is damaged: in its {DATABASE}, the rows ")


def test_versions_that_differ_are_said(call: Call, bundle: Path, tmp_path: Path) -> None:
    with opened(bundle, tmp_path / "open") as folder:
        sql("""UPDATE meta SET value = '"1.2.3"' WHERE key = 'torch'""")(folder)
    done = verified(call, "points.zip", "--aggregations", "1")
    assert done.code == 0
    assert "torch is 1.2.3 there and " in done.out and "the last bits of results may differ" in done.out


def test_without_fitting_checksums_nothing_is_run(call: Call, bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as content:
        members = {name: content.read(name) for name in content.namelist()}
    members["files/points/helper_of_mine.py"] = b"raise SystemExit\n"
    with zipfile.ZipFile(bundle, "w") as content:
        for name, data in members.items():
            content.writestr(name, data)
    done = verified(call, "points.zip")
    sentence = "its member 'files/points/helper_of_mine.py' was changed after it was frozen"
    assert (done.code, done.out, done.err) == (2, "", f"fairlag: 'points.zip' is damaged: {sentence}\n")


def test_a_list_that_says_something_else_than_the_record_is_refused(call: Call, bundle: Path, tmp_path: Path) -> None:
    with opened(bundle, tmp_path / "open"):
        pass
    text("bundle.json", '"seed": 0', '"seed": 7')(tmp_path / "open")
    files = [file for file in (tmp_path / "open").rglob("*") if file.is_file() and file.name != SUMS]
    archive.write(bundle, {file.relative_to(tmp_path / "open").as_posix(): file for file in files})
    done = verified(call, "points.zip")
    assert (done.code, "says something else of Mine, seed 7 than its record" in done.err) == (2, True)


def test_no_code_imports_nothing_but_repeats_the_rest(call: Call, bundle: Path, tmp_path: Path) -> None:
    done = verified(call, "points.zip", "--no-code")
    assert done.code == 2
    assert "Mine, seed 0: could not be repeated: " in done.out and "which --no-code refuses" in done.out
    assert "/fairlag-" not in done.out  # the temporary folder
    assert "FedAvg, seed 0: the same bytes" in done.out
    assert done.err.endswith("fairlag: 1 of 2 runs could be repeated\n")


def test_the_same_runs_give_the_same_bytes_without_paths(call: Call, tmp_path: Path) -> None:
    file = experiment_in(tmp_path / "a", aggregations=4, data=str(tmp_path / "elsewhere.csv"))
    out = made(file, tmp_path / "out")
    first, second = (bundled(tmp_path / f"{name}.zip", out).read_bytes() for name in "xy")
    assert first == second
    with zipfile.ZipFile(tmp_path / "x.zip") as content:
        assert "files/points/outside/1/elsewhere.csv" in content.namelist()
        assert not [name for name in content.namelist() if str(tmp_path).encode() in content.read(name)]
    (tmp_path / "elsewhere.csv").unlink()
    assert verified(call, str(tmp_path / "x.zip"), "--whole").code == 0


def test_modules_of_the_same_name_from_two_experiments(call: Call, tmp_path: Path) -> None:
    outs = []
    for name, power in (("a", "-0.5"), ("b", "0.5")):
        file = experiment_in(tmp_path / name, aggregations=4)
        file.write_text(file.read_text().replace('"points"', f'"{name}"'))
        (tmp_path / name / "helper_of_mine.py").write_text(f"POWER = {power}\n")
        outs.append(made(file, tmp_path / f"out-{name}"))
    bundled(tmp_path / "two.zip", *outs)
    done = verified(call, str(tmp_path / "two.zip"), "--whole")
    assert (done.code, done.out.count("the same bytes")) == (0, 4)


def test_large_data_is_left_out_and_given_again(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "LARGEST", 1000)
    file = experiment_in(tmp_path / "a", aggregations=4)
    out = made(file, tmp_path / "out")
    done = call("freeze", str(out), "--out", str(tmp_path / "x.zip"))
    assert "points.csv is too large (0 MB): the bundle has only its checksum" in done.out
    done = verified(call, str(tmp_path / "x.zip"))
    assert (done.code, "points.csv, not in the bundle because of the size: give --files DIR" in done.out) == (2, True)
    assert verified(call, str(tmp_path / "x.zip"), "--files", str(tmp_path / "a")).code == 0
    (tmp_path / "a/points.csv").write_text("x,y,label\n")
    done = verified(call, str(tmp_path / "x.zip"), "--files", str(tmp_path / "a"))
    assert (done.code, "but the runs used " in done.err) == (2, True)


def test_what_own_code_reads_is_added(call: Call, tmp_path: Path) -> None:
    file = experiment_in(tmp_path / "a", aggregations=4)
    (tmp_path / "a/helper_of_mine.py").write_text(
        "from pathlib import Path\nPOWER = float(Path('power.txt').read_text())\n"
    )
    (tmp_path / "a/power.txt").write_text("-1")
    with pytest.MonkeyPatch.context() as here:
        here.chdir(tmp_path / "a")
        made(file, tmp_path / "out")
    lacking = str(bundled(tmp_path / "x.zip", tmp_path / "out"))
    done = verified(call, lacking)
    assert (done.code, "No such file or directory: 'power.txt'" in done.out) == (2, True)
    done = call("freeze", str(tmp_path / "out"), "--out", lacking, "--add", str(tmp_path / "a/power.txt"))
    assert done.code == 0, done.err
    assert verified(call, lacking, "--whole").code == 0
    done = call("freeze", str(tmp_path / "out"), "--out", lacking, "--add", str(tmp_path / "x.zip"))
    assert (done.code, "which is in none of the experiments' folders" in done.err) == (2, True)


def test_a_fleet_file_that_has_changed_since_the_run_is_refused(call: Call, tmp_path: Path) -> None:
    file = experiment_in(tmp_path / "a", aggregations=4)
    there = tmp_path / "a/there.csv"
    there.write_text("client,start,end\n" + "".join(f"c{each},0,1000\n" for each in range(4)))
    file.write_text(
        file.read_text().replace('"uniform(1, 2)"', '"uniform(1, 2)"\navailability = "file(\'there.csv\')"')
    )
    out = made(file, tmp_path / "out")
    assert call("freeze", str(out), "--out", str(tmp_path / "x.zip")).code == 0
    there.write_text(there.read_text().replace("1000", "999"))
    done = call("freeze", str(out), "--out", str(tmp_path / "x.zip"))
    sentence = "fairlag: the file 'there.csv' has changed since the experiment 'points' was run\n"
    assert (done.code, done.err) == (2, sentence)


def test_runs_that_are_not_finished_are_refused_or_said(call: Call, tmp_path: Path) -> None:
    out = made(experiment_in(tmp_path / "a", aggregations=4), tmp_path / "out", 0, 1)
    shutil.rmtree(out / "mine-seed1")
    with closing(sqlite3.connect(out / "fedavg-seed1" / DATABASE)) as database, database:
        database.execute("DELETE FROM evaluations")
    target = str(tmp_path / "x.zip")
    done = call("freeze", str(out), "--out", target)
    assert (done.code, "1 of 3 runs are damaged: restore them, or name the others" in done.err) == (2, True)
    shutil.rmtree(out / "fedavg-seed1")
    done = call("freeze", str(out), "--out", target)
    assert done.code == 2
    assert "2 of 4 runs are not finished" in done.err and "out/mine-seed1 (not begun)" in done.err
    assert not Path(target).exists()
    done = call("freeze", str(out), "--out", target, "--unfinished")
    assert (done.code, "out/mine-seed1: not begun\n" in done.out) == (0, True)


def test_a_failed_run_is_a_result(call: Call, tmp_path: Path) -> None:
    file = experiment_in(tmp_path / "a", aggregations=4)
    file.write_text(file.read_text() + "lr = 1e300\n")
    with pytest.raises(FairlagError, match="1 of 2 runs failed"):
        made(file, tmp_path / "out")
    forget()
    done = call("freeze", str(tmp_path / "out"), "--out", str(tmp_path / "x.zip"))
    assert done.code == 0, done.err
    assert "FedAvg, seed 0: failed after " in done.out
    done = verified(call, str(tmp_path / "x.zip"))
    assert (done.code, done.out.count("the same bytes")) == (0, 2), done.out + done.err


def test_a_deployment_cannot_be_repeated(call: Call, tmp_path: Path) -> None:
    out = made(experiment_in(tmp_path / "a", aggregations=4), tmp_path / "out")
    deployed(Run(out / "fedavg-seed0"))
    bundled(tmp_path / "x.zip", out)
    done = verified(call, str(tmp_path / "x.zip"))
    assert (done.code, "FedAvg, seed 0: cannot be repeated: a real fleet made it" in done.out) == (0, True)
    bundled(tmp_path / "y.zip", out / "fedavg-seed0")
    done = verified(call, str(tmp_path / "y.zip"))
    assert (done.code, done.err) == (2, "fairlag: 0 of 1 runs could be repeated\n")
    assert "every file has its checksum; 1 run\n" in done.out


def test_a_sweep_with_its_trials(call: Call, tmp_path: Path) -> None:
    made_sweep(swept(BUFFERED, seeds=1, tests=1), tmp_path / "tuned")
    done = call("freeze", str(tmp_path / "tuned"), "--out", str(tmp_path / "x.zip"))
    assert done.code == 0, done.err
    with zipfile.ZipFile(tmp_path / "x.zip") as content:
        assert {"sweeps/swept/sweep.json", "sweeps/swept/result.json"} <= set(content.namelist())
        assert not [name for name in content.namelist() if str(tmp_path).encode() in content.read(name)]
    assert verified(call, str(tmp_path / "x.zip")).code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["freeze"], "Missing argument 'RUN...'"),
        (["freeze", "."], "Missing option '--out'"),
        (["freeze", ".", "--out", "x.tar"], "--out is 'x.tar': a bundle is a zip file, so its name must end with .zip"),
        (["freeze", ".", "--out", "x.zip"], "there are no runs in '.'"),
        (["freeze", "no/such", "--out", "x.zip"], "there is no folder 'no/such'"),
        (["verify", "x.zip"], "there is no bundle 'x.zip'"),
        (["verify", "."], "there is no bundle '.'"),
        (["verify", "points.zip", "--aggregations", "0"], "--aggregations is 0, it must be at least 1"),
        (["verify", "points.zip", "--whole", "--aggregations", "3"], "--whole repeats all aggregations: leave out"),
        (["verify", "points.zip", "--files", "no"], "--files is 'no', but there is no such folder"),
    ],
)
def test_mistakes_are_one_sentence(call: Call, bundle: Path, words: list[str], sentence: str) -> None:
    done = call(*words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"fairlag: {sentence}")
