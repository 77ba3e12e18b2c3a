"""The command line as a user meets it: what it prints, where, and its exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fairlag
from fairlag.analyse.incentives import FACTORS
from fairlag.zoo import ALGORITHMS
from tests.support.command import Call
from tests.support.patience import PATIENCE
from tests.support.runs import made

ROOT = Path(__file__).parent.parent

BRIEF = ["--aggregations", "40", "--seeds", "1", "--workers", "1"]
SHORT = [*BRIEF, "--incentive-updates", "20000"]


def test_version_and_help(call: Call) -> None:
    assert call("--version").out == f"fairlag {fairlag.__version__}\n"
    helped = call("--help")
    assert helped.code == 0
    assert all(word in helped.out for word in ("audit", "strategies", "presets"))


@pytest.mark.parametrize(("command", "table"), [("sweep", "[sweep]"), ("audit", "[privacy]")])
def test_help_shows_the_names_of_tables(call: Call, command: str, table: str) -> None:
    """Square brackets are markup in a help text, unless they are escaped."""
    assert table in call(command, "--help").out


def test_json_is_exactly_what_is_promised(call: Call) -> None:
    done = call("audit", "demo", "--json", "--strategy", "buffered_fedavg", *BRIEF, "--incentive-error", "0.5")
    assert done.code == 0
    found = json.loads(done.out)
    assert list(found) == ["experiment", "strategies", "answer"]
    assert found["experiment"] == "demo"
    first = found["strategies"][0]
    assert list(first) == [
        *("label", "use", "updates", "virtual_time", "jain", "jain_entitled", "cap_needed", "versions_per_hour"),
        *("updates_per_day", "megabytes_per_day", "lost", "waiting", "settled", "throttling", "timings", "groups"),
    ]
    assert list(first["timings"]) == ["tried", "aggregations", "replications", "left_out"]
    assert list(first["throttling"]) == ["tried", "aggregations", "replications", "wanted_error", "advice"]
    assert (first["label"], first["use"], first["updates"]) == ("Buffered FedAvg", "buffered_fedavg", 200)
    assert list(first["groups"]) == ["fast", "slow"]
    assert list(first["groups"]["slow"]) == [
        "clients",
        "share",
        "influence",
        "fair",
        "entitled",
        "influence_per_presence",
        "staleness",
        "staleness_predicted",
        "updates_per_day",
        "megabytes_per_day",
        "throttle_gain",
        "throttle_gain_error",
        "throttle_gain_at_most",
        "best_throttle",
        "best_timing",
        "timing_gain",
        "timing_gain_error",
        "timing_gain_at_most",
        "truthful",
        "identities",
    ]
    trials = first["throttling"]["replications"] * len(FACTORS) * 2
    assert f"incentives: {trials} of {trials} trials" in done.err
    assert first["groups"]["slow"]["truthful"] is True
    assert first["groups"]["slow"]["fair"] == pytest.approx(1 / 3, abs=1e-6)


def test_the_table_fits_a_terminal_and_names_the_file_it_wrote(call: Call, tmp_path: Path) -> None:
    done = call("audit", "demo", "--theory", "--out", str(tmp_path / "audit.json"), *SHORT)
    assert done.code == 0
    assert max(len(line.rstrip()) for line in done.out.splitlines()) <= 80
    assert all(word in done.out for word in ("FedStaleWeight", "slow", "Jain index", "Theory at a buffer of 5"))
    assert done.out.replace("\n", "").endswith(f"The audit was written to {tmp_path / 'audit.json'}")
    assert json.loads((tmp_path / "audit.json").read_text())["experiment"] == "demo"
    assert "fairness: 3 of 3 trials" in done.err


def test_strategies_and_presets_are_listed(call: Call) -> None:
    rows = json.loads(call("strategies", "--json").out)
    assert [row["use"] for row in rows] == list(ALGORITHMS)
    parameters = {row["use"]: row["parameters"] for row in rows}
    assert parameters["fedavg"] == {"cohort": 10, "over": 0.0, "deadline": None, "importance": "examples", "lr": 1.0}
    assert all(row["description"].endswith(".") and row["formula"] and row["reference"] for row in rows)
    assert {row["use"]: row["needs"] for row in rows}["safa"] == [
        *("rounds", "memory (server: averaging())", "identities", "reads (reduce)")
    ]
    assert "fedstaleweight" in call("strategies").out
    assert "paper-cifar10" in call("presets").out


def test_the_table_of_algorithms_is_what_the_docstrings_say(call: Call) -> None:
    page = call("strategies", "--markdown").out
    assert page == (ROOT / "docs" / "algorithms.md").read_text("utf-8"), "make it anew, as its first line says"
    families = {each.family for each in ALGORITHMS.values()}
    assert page.count("\n| `") == len(families) + len(ALGORITHMS)
    assert all(page.count(f"\n## {family}\n") == 1 for family in families), "a family is one table"
    both = call("strategies", "--markdown", "--json")
    assert both.code == 2 and "give one of them" in both.err


def test_a_preset_can_be_saved_changed_and_audited(call: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(call("presets", "demo").out.replace("count = 5", "count = 2"))
    done = call("audit", str(tmp_path / "mine.toml"), "--json", "--strategy", "fairshare", *SHORT)
    (only,) = json.loads(done.out)["strategies"]
    assert only["groups"]["slow"]["clients"] == 2


def test_an_audit_takes_settings_parameters_and_buffers(call: Call) -> None:
    words = ("--set", "clients.slow.count=7", "--strategy", "fedadam(cohort=6)", "--strategy", "fedbuff")
    done = call("audit", "demo", "--json", *words, "--buffers", "3,4", *SHORT)
    found = json.loads(done.out)["strategies"]
    assert [each["label"] for each in found] == ["FedAdam (cohort=6)", "FedBuff (buffer=3)", "FedBuff (buffer=4)"]
    assert [each["updates"] for each in found] == [40 * 6, 40 * 3, 40 * 4]
    assert all(each["groups"]["slow"]["clients"] == 7 for each in found)


def test_a_strategy_that_the_file_does_not_have_takes_the_files_buffer_and_says_so(call: Call) -> None:
    done = call("audit", "demo", "--json", "--strategy", "fedbuff", *SHORT)
    assert json.loads(done.out)["strategies"][0]["updates"] == 40 * 5  # the zoo's is 10
    assert "fedbuff uses the buffer of the file's strategies, 5; for a different one, write" in done.err
    done = call("audit", "demo", "--json", "--strategy", "fedbuff(buffer=10)", *SHORT)
    assert json.loads(done.out)["strategies"][0]["updates"] == 40 * 10
    assert "uses the buffer" not in done.err


def test_a_users_own_rule_is_found_beside_the_file(call: Call, tmp_path: Path) -> None:
    (tmp_path / "rules_of_mine.py").write_text("def even(buffer, view):\n    return [1 / len(buffer)] * len(buffer)\n")
    text = call("presets", "demo").out.replace("buffered_fedavg", "rules_of_mine:even")
    (tmp_path / "mine.toml").write_text(text)
    done = call("audit", str(tmp_path / "mine.toml"), "--json", "--strategy", "even (buffer=5)", *SHORT)
    (only,) = json.loads(done.out)["strategies"]
    assert only["use"] == "rules_of_mine:even"
    done = call("audit", str(tmp_path / "mine.toml"), "--json", "--strategy", "rules_of_mine:even(buffer=7)", *SHORT)
    assert json.loads(done.out)["strategies"][0]["updates"] == 40 * 7


BAD = {
    "unknown strategy": ('use = "fairshare"', 'use = "fairshore"', "unknown strategy 'fairshore': did you mean"),
    "negative delay": ('"uniform(8, 12)"', '"uniform(-8, 12)"', "-8"),
    "zero buffer": ("buffer = 5", "buffer = 0", "the buffer is 0"),
    "deadlock": ("buffer = 5", "buffer = 16", "a buffer of 16 never fills with 15 clients"),
    "labels nobody holds": ("labels = [0, 1, 2, 3]", "labels = [0, 1, 3]", "no client holds the label 2"),
    "malformed TOML": ('name = "demo"', "name = demo", "is not valid TOML"),
    "unknown key": ("seed = 0", "sead = 0", "unknown key 'sead': did you mean 'seed'?"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_get_one_sentence_and_exit_code_2(call: Call, case: str, tmp_path: Path) -> None:
    old, new, words = BAD[case]
    text = call("presets", "demo").out
    assert old in text
    (tmp_path / "bad.toml").write_text(text.replace(old, new))
    done = call("audit", str(tmp_path / "bad.toml"), *SHORT)
    assert done.code == 2
    assert done.out == ""
    assert words in done.err
    assert done.err.startswith("fairlag: ")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["audit", "nothing"], "no experiment file or preset 'nothing'"),
        (["audit", "demo", "--seeds", "0"], "--seeds is 0, it must be at least 1"),
        (["audit", "demo", "--aggregations", "-3"], "--aggregations is -3, it must be at least 1"),
        (["audit", "demo", "--aggregations", "many"], "many"),
        (["audit", "demo", "--seeds", str(10**9)], "--seeds is 1000000000, it must be at most 10,000"),
        (["run", "demo", "--seeds", str(10**9)], "--seeds is 1000000000, it must be at most 10,000"),
        (["audit", "demo", "--aggregations", str(10**30)], "aggregations is 1000000000000000000000000000000"),
        (["run", "demo", "--aggregations", str(10**30)], "aggregations is 1000000000000000000000000000000"),
        (["audit", "demo", "--strategy", f"fedstaleweight(window={10**9})"], "takes 120 GB: use a window of"),
        (["run", "demo", "--strategy", f"fedstaleweight(window={10**9})"], "takes 120 GB: use a window of"),
        (["audit", "demo", "--strategy", "fedadam(5)"], "the strategy 'fedadam(5)' cannot be read: give each"),
        (["audit", "demo", "--strategy", "fedadam(cohort=[5])"], "the strategy 'fedadam(cohort=[5])' cannot be read"),
        (["run", "demo", "--strategy", "fedadam(cohort=5"], "the strategy 'fedadam(cohort=5' cannot be read"),
        (["audit", "demo", "--strategy", "fedadam(cohrt=5)"], "has no parameter 'cohrt': did you mean 'cohort'?"),
        (["audit", "demo", "--buffers", "5,x"], "--buffers is '5,x', it must be whole numbers above 0, such as 5,10"),
        (["audit", "demo", "--buffers", "5,99"], "a buffer of 99 never fills with 15 clients"),
        (["audit", "demo", "--strategy", "fedavg", "--buffers", "5"], "none of the strategies has a buffer"),
        (["audit", "demo", "--set", "clients.slow.cuont=7"], "did you mean 'count'?"),
        (["audit", "demo", "--incentive-error", "7"], "the incentive error is 7.0, it must be between 0 and 1"),
        (["audit", "demo", "--strategy", "fedbluff"], "unknown strategy 'fedbluff': did you mean 'fedbuff'?"),
        (["audit", "demo", "--out", "no/such/folder.json"], "there is no folder 'no/such'"),
        (["audit"], "FILE|PRESET"),
        (["adit"], "adit"),
        (["presets", "x"], "no preset 'x'"),
    ],
)
def test_bad_options_get_one_sentence_and_exit_code_2(call: Call, words: list[str], sentence: str) -> None:
    done = call(*words)
    assert done.code == 2
    assert sentence in done.err
    assert "Traceback" not in done.err
    assert done.err.count("\n") == 1


def test_a_process_of_its_own_says_the_same(call: Call) -> None:
    command = [sys.executable, "-m", "fairlag", "presets", "demo"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == call("presets", "demo").out


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_ends_cleanly(times: int) -> None:
    command = [sys.executable, "-m", "fairlag", "audit", "paper-cifar10", "--workers", "2"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while not (line := process.stderr.readline()).startswith("fairness: "):
            assert line.startswith("compiling loops")  # said if the machine is slow today
        for _ in range(times):
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130 or (times == 2 and process.returncode == -signal.SIGINT)
    assert errors.splitlines()[-1] == "fairlag: interrupted; nothing was written"
    assert "Traceback" not in errors


NOISY = """
print("imported")

def noisy(buffer, view):
    print("weighing")
    return [1 / len(buffer)] * len(buffer)

def broken(buffer, view):
    return {}["gap"]
"""


def test_what_a_users_rule_prints_or_raises_stays_off_standard_output(call: Call, tmp_path: Path) -> None:
    (tmp_path / "noisy_rules.py").write_text(NOISY)
    text = call("presets", "demo").out.replace("buffered_fedavg", "noisy_rules:noisy")
    (tmp_path / "mine.toml").write_text(text)
    for workers in ("1", "2"):
        words = [
            "--json",
            "--aggregations",
            "10",
            "--seeds",
            "1",
            "--workers",
            workers,
            "--strategy",
            "noisy (buffer=5)",
        ]
        assert json.loads(call("audit", str(tmp_path / "mine.toml"), *words).out)["experiment"] == "demo"
    (tmp_path / "mine.toml").write_text(text.replace("noisy_rules:noisy", "noisy_rules:broken"))
    done = call("audit", str(tmp_path / "mine.toml"), *SHORT)
    assert done.code == 2
    assert "the weighting broken raised KeyError: 'gap' (noisy_rules.py, line 9)" in done.err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("aggregations = 2000", "until_time = 0.5", "made no version before its run ended: time 0.5 was reached"),
        ('delay = "uniform(8, 12)"', 'delay = "uniform(8, 12)"\njoin = 1e6', ""),
        ("count = 5", "count = 2000", ""),
    ],
)
def test_fleets_at_the_edge(old: str, new: str, words: str, call: Call, tmp_path: Path) -> None:
    (tmp_path / "edge.toml").write_text(call("presets", "demo").out.replace(old, new))
    done = call("audit", str(tmp_path / "edge.toml"), *SHORT[2:], "--strategy", "fairshare")
    assert (words in done.err and done.code == 2) if words else done.code == 0


def test_an_output_file_that_cannot_be_written_is_noticed_before_the_work(call: Call, tmp_path: Path) -> None:
    done = call("audit", "demo", "--out", str(tmp_path))
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "a folder: give the name of a file" in done.err


def test_lists_are_printed_as_json(call: Call, tmp_path: Path) -> None:
    presets = json.loads(call("presets", "--json").out)
    assert "demo" in [each["name"] for each in presets] and all(each["what"] for each in presets)
    assert json.loads(call("presets", "demo", "--json").out)["clients"][0]["group"] == "fast"
    data = json.loads(call("data", "list", "--json").out)
    assert [each["name"] for each in data][:2] == ["digits", "diabetes"]
    assert data[0]["shape"] == [1, 8, 8]
    made(tmp_path / "runs/good", seed=3)
    made(tmp_path / "runs/spoilt")
    (tmp_path / "runs/spoilt/run.sqlite").write_bytes(b"x" * 5000)
    done = call("runs", str(tmp_path), "--json")
    assert (done.code, done.err) == (0, "")
    good, spoilt = json.loads(done.out)
    assert (good["folder"], good["seed"], good["status"], good["version"]) == (
        str(tmp_path / "runs/good"),
        3,
        "finished",
        2,
    )
    assert (good["accuracy"], good["error"]) == (0.64, "")
    assert (spoilt["status"], spoilt["accuracy"]) == ("unreadable", None)
    assert "its run.sqlite is something else" in spoilt["error"]


def test_a_shell_is_given_completion(call: Call) -> None:
    assert "--install-completion" in call("--help").out
    command = [sys.executable, "-c", "import sys; sys.argv = ['fairlag']; from fairlag.__main__ import main; main()"]

    def answer(**variables: str) -> str:
        return subprocess.run(
            command, env={**os.environ, **variables}, capture_output=True, text=True, check=True
        ).stdout

    script = answer(_FAIRLAG_COMPLETE="source_bash")
    assert "complete -o default -F _fairlag_completion fairlag" in script
    assert subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=True).stderr == ""
    words = answer(_FAIRLAG_COMPLETE="complete_bash", COMP_WORDS="fairlag ru", COMP_CWORD="1")
    assert words.split() == ["run", "runs"]
