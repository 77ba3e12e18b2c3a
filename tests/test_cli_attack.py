"""`fairlag attack`: one table of strategies, defences and attacks; it continues, and says what does not fit."""

import json
import tomllib
from pathlib import Path

import pytest

from fairlag.errors import InputError
from fairlag.lab import loop
from fairlag.lab.attacks import Attack, attack_of, cases
from fairlag.lab.experiment import load, parse
from fairlag.lab.serialise import toml
from tests.support.command import Call

SHORT = ("--aggregations", "8", "--workers", "1")
FEW = ("--strategy", "Buffered FedAvg", "--strategy", "FairShare", "--defence", "median", "--defence", "kardam(f=2)")
FLIP = ("--attack", "three fast: sign_flip(10)")


def test_it_tells_what_each_attack_did_and_continues(call: Call, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "siege"))
    found = call("attack", "siege", *FEW, *FLIP, *SHORT, *out, "--json")
    told = json.loads(found.out)
    rows = {(row["attack"], row["strategy"], row["defence"]): row for row in told["rows"]}
    assert len(rows) == 2 * (3 + 2)
    assert [each["defence"] for each in told["left_out"]] == ["median"]
    assert told["left_out"][0]["strategy"] == "FairShare" and "spends accounts" in told["left_out"][0]["reason"]
    bare = rows["sign_flip(10) by three fast", "Buffered FedAvg", "none"]
    held = rows["sign_flip(10) by three fast", "Buffered FedAvg", "median"]
    assert bare["score"] < 0.3 < held["score"]
    assert bare["share"] == pytest.approx(0.2) and held["influence"] < bare["influence"]
    honest = rows["none", "Buffered FedAvg", "none"]
    assert (honest["lost"], honest["influence"], honest["refused"], honest["unheard"]) == (0.0, None, 0.0, 0.0)
    assert bare["lost"] == pytest.approx(honest["score"] - bare["score"])
    again = call("attack", "siege", *FEW, *FLIP, *SHORT, *out, "--json")
    assert json.loads(again.out) == told
    assert "aggregations" not in again.err  # nothing was trained again


def test_the_table_and_the_figure(call: Call, tmp_path: Path) -> None:
    picture = tmp_path / "siege.png"
    found = call("attack", "siege", *FEW, *FLIP, *SHORT, "--out", str(tmp_path / "siege"), "--figure", str(picture))
    assert "Attack: sign_flip(10) by three fast (20% of all clients)" in found.out and "No attack" in found.out
    assert "FairShare + median was left out" in " ".join(found.out.split())
    assert picture.read_bytes().startswith(b"\x89PNG")
    again = ("attack", "siege", *FEW, *FLIP, *SHORT, "--out", str(tmp_path / "siege"), "--export")
    assert call(*again, "csv").out.startswith("strategy,defence,attack,score,lost,")
    assert "| attack | strategy | defence |" in call(*again, "markdown").out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("demo",), "the experiment 'demo' has no attack: add an [[attacks]] table, or give --attack"),
        (("siege", "--attack", "sign_flip"), "the attack is 'sign_flip', it must be a group and a behaviour"),
        (("siege", "--attack", "slaw: sign_flip"), "there is no group 'slaw' to attack: did you mean 'slow'?"),
        (("siege", "--attack", "slow: flip"), "behaviour of group 'slow': there is no behaviour 'flip'"),
        (("siege", "--defence", "wall"), "there is no defence 'wall'"),
        (("racer", "--attack", "fast: sign_flip"), "the experiment 'racer' has no [data]: an attack needs a model"),
    ],
)
def test_what_cannot_be_tried_is_one_sentence(call: Call, words: tuple[str, ...], sentence: str) -> None:
    found = call("attack", *words)
    assert (found.code, found.out) == (2, "")
    assert sentence in " ".join(found.err.split())


def test_an_attack_on_the_command_line_is_one_of_the_file() -> None:
    assert attack_of("three fast: sign_flip(10), throttle(6)") == load("siege").attacks[1]  # type: ignore[index]
    assert attack_of("slow: free_ride") == Attack(group="slow", behaviour="free_ride")


def test_a_file_with_attacks_is_written_and_read_again() -> None:
    siege = load("siege")
    assert parse(tomllib.loads(toml(siege))) == siege


def test_in_each_case_only_its_own_group_attacks() -> None:
    found, _ = cases(load("siege"), defences=["median"])
    attacking = [
        [(table.group, table.behaviour, table.timing) for table in case.experiment.clients if table.behaviour]
        for case in found
    ]
    assert attacking[:3] == [
        [],
        [("three fast", "sign_flip(10)", None)],
        [("three fast", "sign_flip(10)", "throttle(6)")],
    ]
    assert all(case.experiment.attacks is None and case.experiment.defences is None for case in found)


def test_an_experiment_without_attacks_is_refused_before_anything_runs() -> None:
    with pytest.raises(InputError, match="has no attack"):
        cases(load("demo"))


def test_a_run_that_an_attack_ends_early_is_a_result(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT", 1e9)  # it ends before it is saved, however busy the machine is
    only = ("--strategy", "Buffered FedAvg", "--defence", "krum(f=3)", "--attack", "three fast: scale(1e37)")
    found = call("attack", "siege", *only, *SHORT, "--out", str(tmp_path / "siege"), "--json")
    rows = {(row["attack"], row["defence"]): row for row in json.loads(found.out)["rows"]}
    assert [rows["scale(1e37) by three fast", each]["failed"] for each in ("none", "krum(f=3)")] == [1, 0]
    assert rows["scale(1e37) by three fast", "none"]["influence"] is None
    assert "1 of 2 runs failed" in found.err
    shown = call("attack", "siege", *only, *SHORT, "--out", str(tmp_path / "siege"))
    said = " ".join(shown.out.split())
    early = "1 of 1 runs ended early (training diverged after version 1)."
    assert f"*: Buffered FedAvg under scale(1e37) by three fast: {early}" in said
    assert "–*: a run ended before it was saved for the first time, so there is no score." in said
    compared = " ".join(call("compare", str(tmp_path / "siege" / "scale-1e37-by-three-fast")).out.split())
    assert "Buffered FedAvg: seed 0 failed: training diverged after version 1: the last 1000 updates" in compared
    assert "are not finite; it was last saved at 0 of 8 aggregations." in compared
