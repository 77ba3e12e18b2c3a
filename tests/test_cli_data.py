"""`fairlag data` as a user meets it: what there is, getting it, and who holds what."""

import subprocess
import sys
from pathlib import Path

import pytest

from fairlag.data.sources import SOURCES
from tests.support.command import Call
from tests.support.data_files import SMALL, put


def words(text: str) -> str:
    """Without the breaks of lines."""
    return " ".join(text.split())


def test_what_is_here_is_listed_and_how_to_get_the_rest(call: Call, place: Path) -> None:
    put(place / "mnist", SMALL["mnist"])
    done = call("data", "list")
    assert done.code == 0
    assert max(len(line) for line in done.out.splitlines()) <= 80
    assert all(name in done.out for name in ("digits", "synthetic", *SOURCES))
    assert f"Get cifar10 by {', or by '.join(SOURCES['cifar10'].ways)}." in words(done.out)
    assert "Get mnist" not in done.out


def test_a_data_set_is_downloaded(call: Call, server: Path) -> None:
    done = call("data", "get", "cifar10")
    assert done.code == 0
    assert done.out == f"cifar10 is in {SOURCES['cifar10'].downloads}\n"
    assert done.err.splitlines()[-1] == "cifar10: 0.0 of 0.0 MB"
    assert call("data", "get", "cifar10").err == ""


def test_who_holds_what(call: Call, tmp_path: Path) -> None:
    figure = tmp_path / "holdings.svg"
    done = call("data", "show", "demo", "--out", str(figure))
    assert done.code == 0
    assert done.out.startswith("Who holds what in demo: 1,438 training examples")
    rows = {line.split()[0]: words(line) for line in done.out.splitlines() if ": 14" in line}
    assert rows["fast"] == "fast 10 86–87 4: 145, 5: 146, 6: 145, 7: 143, 8: 139, 9: 144"
    assert rows["slow"] == "slow 5 115–116 0: 142, 1: 146, 2: 142, 3: 146"
    assert done.out.endswith(f"The figure was written to {figure}\n")
    assert "slow 4" in figure.read_text()


def test_who_holds_what_is_known_without_what_only_training_needs() -> None:
    code = """
import sys
from fairlag.__main__ import main
sys.argv = ["fairlag", "data", "show", "demo"]
try:
    main()
except SystemExit as end:
    assert not end.code
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Who holds what in demo")
    assert done.stdout.endswith("False\n")


@pytest.mark.parametrize("kind", ["linear", "poisson"])
def test_that_the_data_stream_is_said_in_a_sentence(call: Call, tmp_path: Path, kind: str) -> None:
    plain = call("data", "show", "demo").out
    key = f'[data]\nstream = "{kind}(start=0.15, per_second=0.002)"'
    (tmp_path / "mine.toml").write_text(call("presets", "demo").out.replace("[data]", key))
    done = call("data", "show", str(tmp_path / "mine.toml"))
    # Who holds what is the same: that is what clients have in the end.
    assert done.code == 0 and done.out.startswith(plain)
    sentence = (
        "The data stream: each client has 15% of its examples at the start (at least one), "
        "and gets 0.2% of them each second"
    )
    manner = {"linear": "", "poisson": " on average, one by one at random times"}[kind]
    assert words(done.out.removeprefix(plain)) == f"{sentence}{manner}."


def test_what_clients_hold_back_for_their_own_test_is_not_counted(call: Call, tmp_path: Path) -> None:
    text = call("presets", "demo").out.replace("[evaluate]", "[evaluate]\nclients = 0.1")
    (tmp_path / "mine.toml").write_text(text)
    done = call("data", "show", str(tmp_path / "mine.toml"))
    # Ten clients of 86 or 87 examples hold 9 back; five of 115 or 116, which is 11.5 or 11.6, hold 12 back.
    assert done.out.startswith(f"Who holds what in demo: {1438 - 10 * 9 - 5 * 12:,} training examples")
    said = "Not counted: the 10 % of each client's examples that are held back for its own test."
    assert words(done.out).endswith(said)


def test_many_clients_are_drawn_by_group(call: Call, tmp_path: Path) -> None:
    text = call("presets", "demo").out.replace("count = 10", "count = 100")
    (tmp_path / "mine.toml").write_text(text)
    assert call("data", "show", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "holdings.svg")).code == 0
    drawn = (tmp_path / "holdings.svg").read_text()
    assert ">fast<" in drawn
    assert "fast 0" not in drawn


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["get", "digits"], "'digits' cannot be downloaded, only fashion_mnist, mnist, cifar10"),
        (["show", "racer"], "the experiment 'racer' has no [data]"),
        (["show", "demo", "--out", "x.gif"], "'x.gif' cannot be drawn"),
        (["show", "demo", "--out", "no/x.png"], "--out is 'no/x.png', but there is no folder 'no'"),
        (["shw"], "No such command 'shw'"),
    ],
)
def test_mistakes_are_one_sentence(call: Call, given: list[str], sentence: str) -> None:
    done = call("data", *given)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"fairlag: {sentence}")
