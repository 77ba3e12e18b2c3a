"""What comes from outside has bounds: how deep it is nested, how long a message quotes it, what a terminal obeys."""

import pickle
import re
from pathlib import Path

import pytest

from fairlag.errors import FairlagError, InputError, UnreadableError
from fairlag.fleet import delay
from fairlag.limits import TEXT, TooMuchError, check_depth, json_of, shown, text_of
from fairlag.report.plain import FORMATS
from tests.support.command import Call

HOSTILE = "red\x1b[31m\x1b]0;title\x07\x9b2J\u202eback"
_FILE = (
    f"""
name = "{HOSTILE}"
aggregations = 8

[[clients]]
group = "{HOSTILE}"
count = 3
delay = "uniform(1, 2)"

[[strategies]]
use = "fairshare"
buffer = 2
label = "{HOSTILE}"
""".replace("\x1b", "\\u001b")
    .replace("\x07", "\\u0007")
    .replace("\x9b", "\\u009b")
)


def obeyed(text: str) -> list[str]:
    """What in a text a terminal would obey."""
    return re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)


def test_names_cannot_command_a_terminal(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hostile.toml").write_text(_FILE)
    for words in (
        ("run", "hostile.toml", "--out", "runs", "--workers", "1"),
        ("runs", "runs"),
        ("compare", "runs", "--details"),
        *(("compare", "runs", "--export", form) for form in FORMATS),
        ("audit", "hostile.toml", "--workers", "1", "--seeds", "1", "--incentive-updates", "1"),
        ("report", "runs", "--workers", "1"),
    ):
        done = call(*words)
        assert (done.code, obeyed(done.out), obeyed(done.err)) == (0, [], [])
        assert "31m" in done.out + done.err or words[0] == "report"
    done = call("audit", f"{HOSTILE}.toml")
    assert (done.code, obeyed(done.err)) == (2, [])


def test_a_message_quotes_no_more_than_it_must() -> None:
    for text in (
        "mixture(1, " * 3000 + "1" + ")" * 3000,
        "uniform(1, " + "2, " * 9000 + "3)",
        "q" * 66_000,
        f"mixture(1, uniform(1, 2), 'a' + '{'b' * 66_000}')",
        f"constant('{'x' * 66_000}')",
    ):
        with pytest.raises(InputError) as caught:
            delay.parse(text)
        assert len(str(caught.value)) < 400, str(caught.value)
    with pytest.raises(InputError, match="is nested more than 32 levels deep; write for example"):
        delay.parse("scaled(1, " * 33 + "1" + ")" * 33)
    assert delay.parse("scaled(1, " * 31 + "constant(1)" + ")" * 31).mean == 1
    assert shown(10**6000) == "a int that is too large to be shown"


def test_every_message_is_printable_and_bounded_also_after_it_was_sent_between_processes() -> None:
    error = UnreadableError.of(Path("x"), f"{HOSTILE}{'y' * 66_000} the end")
    copy = pickle.loads(pickle.dumps(error))
    assert len(str(copy)) == 1000 and obeyed(str(copy)) == [] and str(copy).endswith("the end")
    assert (str(copy), copy.folder) == (str(error), Path("x"))
    assert str(FairlagError()) == ""


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("x = " + "[" * 100_000, "its values are nested more than 32 levels deep"),
        (".".join("a" * 5000) + " = 1", "it is nested more than 32 levels deep"),
        ("[[strategies]]\n" + ".".join("a" * 5000) + " = 1", "it is nested more than 32 levels deep"),
        ("aggregations = " + "9" * 5000, "it has a number with too many digits"),
    ],
)
def test_an_experiment_file_that_is_a_bomb_is_one_sentence(
    call: Call, tmp_path: Path, content: str, words: str
) -> None:
    (tmp_path / "bomb.toml").write_text(content)
    done = call("audit", str(tmp_path / "bomb.toml"))
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert words in done.err


def test_files_are_read_up_to_a_bound(tmp_path: Path) -> None:
    (tmp_path / "big").touch()
    with (tmp_path / "big").open("r+b") as file:
        file.truncate(TEXT + 1)  # it takes no room on the disk
    with pytest.raises(TooMuchError, match="more than 64,000,000 bytes"):
        text_of(tmp_path / "big")
    with pytest.raises(TooMuchError, match="not a regular file"):
        text_of(Path("/dev/zero"))
    with pytest.raises(FileNotFoundError):
        text_of(tmp_path / "none")


def test_depth_counts_tables_and_lists() -> None:
    check_depth({"a": [{"b": 1}]}, most=3)
    with pytest.raises(TooMuchError):
        check_depth({"a": [{"b": 1}]}, most=2)
    with pytest.raises(TooMuchError):
        json_of("[" * 33 + "]" * 33)
    assert json_of("[" * 32 + "]" * 32)
