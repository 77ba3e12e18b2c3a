"""Keys in files: made once, private ones hidden from others, and read with a sentence for every mistake."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fairlag.errors import InputError
from fairlag.privacy.secure.keys import (
    allowed_clients,
    certificate,
    client_key,
    keeper_key,
    keeper_public,
    make_keys,
)
from fairlag.privacy.secure.link import KeeperLink


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("keys")
    for party in ("keeper", "server", "client"):
        make_keys(made, party)
    return made


def test_private_and_public_files_belong_together(folder: Path) -> None:
    assert keeper_key(folder / "keeper.key").public_key().public_bytes_raw() == keeper_public(folder / "keeper.pub")
    own = client_key(folder / "client.key").public_key().public_bytes_raw()
    assert allowed_clients(folder / "client.pub") == {own}
    for party in ("keeper", "server"):
        assert certificate(folder / f"{party}.key") == certificate(folder / f"{party}.pub")
    assert certificate(folder / "keeper.pub") != certificate(folder / "server.pub")


def test_private_files_are_for_their_owner_alone_and_public_ones_hold_no_private_key(folder: Path) -> None:
    for party in ("keeper", "server", "client"):
        assert folder.joinpath(f"{party}.key").stat().st_mode & 0o077 == 0
        assert "PRIVATE" not in folder.joinpath(f"{party}.pub").read_text()


def test_keys_are_never_overwritten(folder: Path) -> None:
    before = folder.joinpath("keeper.key").read_bytes()
    with pytest.raises(InputError, match=r"cannot write '.*keeper\.key': File exists"):
        make_keys(folder, "keeper")
    assert folder.joinpath("keeper.key").read_bytes() == before


@pytest.mark.parametrize("party", ["keeper", "server", "client"])
def test_a_private_key_that_others_may_read_is_refused(folder: Path, tmp_path: Path, party: str) -> None:
    copy = tmp_path / f"{party}.key"
    copy.write_bytes(folder.joinpath(copy.name).read_bytes())
    copy.chmod(0o640)
    read: dict[str, Callable[[Path], object]] = {
        "keeper": keeper_key,
        "server": lambda file: KeeperLink("127.0.0.1:1", file, folder / "keeper.pub", 5),
        "client": client_key,
    }
    with pytest.raises(InputError, match="is a private key, but others may read it: run chmod 600 on it"):
        read[party](copy)


def test_a_link_needs_a_key_and_a_certificate(folder: Path) -> None:
    with pytest.raises(InputError, match=r"has no key and certificate for TLS: give keeper\.key or server\.key"):
        KeeperLink("127.0.0.1:1", folder / "client.key", folder / "keeper.pub", 5)


def test_the_list_of_clients_may_have_names_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "clients.txt"
    file.write_text(f"# the hospitals\n\n{'0a' * 32} north wing\n  {'0B' * 32}\n")
    assert allowed_clients(file) == {b"\n" * 32, b"\x0b" * 32}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("abc\n", "line 1 of '.*' must begin with 64 hexadecimal digits"),
        (f"{'00' * 32}\n{'00' * 33}\n", "line 2 of '.*' must begin with 64 hexadecimal digits"),
        ("# nobody\n", "lists no clients"),
    ],
)
def test_a_list_of_clients_with_a_mistake_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "clients.txt"
    file.write_text(text)
    with pytest.raises(InputError, match=reason):
        allowed_clients(file)


def test_the_wrong_file_is_named_with_the_right_one(folder: Path, tmp_path: Path) -> None:
    empty, damaged = tmp_path / "empty", tmp_path / "damaged"
    empty.write_text("-----BEGIN PRIVATE KEY-----\n")
    damaged.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    empty.chmod(0o600)
    for read, file, words in (
        (keeper_key, folder / "client.key", "has no X25519 key: give the file keeper.key"),
        (keeper_public, folder / "server.pub", "has no X25519 key: give the file keeper.pub"),
        (client_key, empty, "has no Ed25519 key: give the file client.key"),
        (certificate, folder / "client.pub", "has 0 certificates, it must have one"),
        (certificate, damaged, "has a damaged certificate: "),
        (certificate, tmp_path / "none", "cannot read '.*none': No such file"),
    ):
        with pytest.raises(InputError, match=words):
            read(file)


def test_there_are_three_parties(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there are no keys for 'clients': did you mean 'client'"):
        make_keys(tmp_path, "clients")


def test_used_seeds_of_an_older_key_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    for file in make_keys(tmp_path, "keeper")[:2]:
        file.unlink()
    with pytest.raises(InputError, match=r"keeper\.used' belongs to an older key: make new keys in another folder"):
        make_keys(tmp_path, "keeper")
    assert [file.name for file in tmp_path.iterdir()] == ["keeper.used"]
