"""`fairlag keeper`: keys are made, and bad options end with one sentence. The process itself is tested elsewhere."""

import sys
from pathlib import Path

import pytest

from fairlag.privacy.secure.keys import make_keys
from tests.support.command import Call, caller


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    return caller(monkeypatch, capsys)


def test_keys_are_made_and_named(call: Call, tmp_path: Path) -> None:
    done = call("keeper", "--make-keys", str(tmp_path), "--for", "client")
    assert (done.code, done.err) == (0, "")
    assert "Keep client.key secret, and give client.pub to the others" in done.out
    assert {file.name for file in tmp_path.iterdir()} == {"client.key", "client.pub"}


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--run", None, "--run is missing"),
        ("--least", "1", "the least number of clients is 1, it must be at least 2"),
        ("--least", "3", "lists 2 clients, but a sum needs at least 3"),
        ("--bound", "1.5", "the bound on a client's share is 1.5"),
        ("--size", "0", "the number of parameters is 0"),
        ("--key", "nowhere/keeper.key", "cannot read 'nowhere/keeper.key': No such file or directory"),
        ("--server", "nowhere/server.pub", "cannot read 'nowhere/server.pub'"),
        ("--listen", "here", "the address is 'here', it must be HOST:PORT"),
        ("--clients", "nowhere/clients.txt", "cannot read 'nowhere/clients.txt'"),
    ],
)
def test_a_bad_option_is_one_sentence(call: Call, tmp_path: Path, option: str, value: str | None, reason: str) -> None:
    for party in ("keeper", "server", "client"):
        make_keys(tmp_path, party)
    with tmp_path.joinpath("client.pub").open("a") as stream:
        stream.write("ab" * 32)
    options = {
        "--key": str(tmp_path / "keeper.key"),
        "--server": str(tmp_path / "server.pub"),
        "--clients": str(tmp_path / "client.pub"),
        "--run": "digits",
        "--size": "5",
        "--least": "2",
        "--bound": "0.6",
    }
    options = {name: text for name, text in options.items() if name != option}
    words = [word for pair in options.items() for word in pair] + ([option, value] if value else [])
    done = call("keeper", *words)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert reason in done.err


def test_a_missing_extra_is_one_sentence(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("fairlag.privacy.secure")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "cryptography.x509")
    monkeypatch.setitem(sys.modules, "cryptography", None)
    done = call("keeper")
    assert (done.code, done.err) == (
        2,
        "fairlag: secure aggregation needs the extra `privacy`: pip install 'fairlag[privacy]'\n",
    )
