"""The keys of the keeper, the server and the clients: made, written to files, and read.

A file `.key` is private; a file `.pub` is for the other parties. `keeper.key` holds the key of the keeper's TLS
certificate, the certificate, and the X25519 key that seeds are sealed to; `keeper.pub` the certificate and the public
X25519 key. `server.key` and `server.pub` are the same without X25519. `client.key` holds an Ed25519 key, `client.pub`
its public part as a line of text: a keeper's list of clients is such lines in one file.
"""

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from cryptography.x509.oid import NameOID

from fairlag.errors import InputError, nearest
from fairlag.limits import text_of
from fairlag.privacy.secure.used import UsedOnDisk

USED = ".used"
"""The suffix of the database of used seeds, beside the key that they were sealed to."""

_DAYS = 3650
_BLOCK = re.compile(r"-----BEGIN ([A-Z ]+)-----\n.*?-----END \1-----\n?", re.DOTALL)

Kind = TypeVar("Kind")


def make_keys(folder: Path, party: str) -> list[Path]:
    """Writes new keys of the "keeper", the "server" or a "client" into a folder; never overwrites a file."""
    made = {"keeper": _keeper, "server": _server, "client": _client}
    if party not in made:
        raise InputError(f"there are no keys for {party!r}: {nearest(party, made)}")
    private, public = made[party]()
    used = folder / f"{party}{USED}"
    if used.exists() and not (folder / f"{party}.key").exists():
        raise InputError(f"{str(used)!r} belongs to an older key: make new keys in another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / f"{party}.key", folder / f"{party}.pub"]
        for file, text, mode in zip(files, (private, public), (0o600, 0o644), strict=True):
            with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as stream:
                stream.write(text)
    except OSError as error:
        raise InputError(f"cannot write {error.filename!r}: {error.strerror}") from None
    if party == "keeper":
        files.append(used)
        UsedOnDisk.create(used)
    return files


def _keeper() -> tuple[str, str]:
    key = X25519PrivateKey.generate()
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    tls, certificate = _certified("fairlag keeper")
    # The TLS key is the first, because that is the one that OpenSSL takes from a file.
    return tls + certificate + _pem(key), certificate + public


def _server() -> tuple[str, str]:
    tls, certificate = _certified("fairlag server")
    return tls + certificate, certificate


def _client() -> tuple[str, str]:
    key = Ed25519PrivateKey.generate()
    return _pem(key), key.public_key().public_bytes_raw().hex() + "\n"


def _pem(key: X25519PrivateKey | Ed25519PrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _certified(name: str) -> tuple[str, str]:
    """A new key, and a certificate that it signs for itself: the other party pins it, so no authority is needed."""
    key, now = Ed25519PrivateKey.generate(), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_DAYS))
        .sign(key, None)
    )
    return _pem(key), certificate.public_bytes(Encoding.PEM).decode()


def keeper_key(file: Path) -> X25519PrivateKey:
    """The key that seeds are sealed to, from `keeper.key`."""
    for key in _private_keys(file):
        if isinstance(key, X25519PrivateKey):
            return key
    raise InputError(f"{str(file)!r} has no X25519 key: give the file keeper.key of the keeper")


def keeper_public(file: Path) -> bytes:
    """The public key that a client seals seeds to, from `keeper.pub`."""
    for key in _loaded(file, "PUBLIC KEY", load_pem_public_key):
        if isinstance(key, X25519PublicKey):
            return key.public_bytes_raw()
    raise InputError(f"{str(file)!r} has no X25519 key: give the file keeper.pub of the keeper")


def client_key(file: Path) -> Ed25519PrivateKey:
    """The key that a client signs with, from `client.key`."""
    for key in _private_keys(file):
        if isinstance(key, Ed25519PrivateKey):
            return key
    raise InputError(f"{str(file)!r} has no Ed25519 key: give the file client.key of a client")


def certificate(file: Path) -> bytes:
    """The one certificate in a file, as its bytes (DER)."""
    found = _loaded(file, "CERTIFICATE", x509.load_pem_x509_certificate)
    if len(found) != 1:
        raise InputError(f"{str(file)!r} has {len(found)} certificates, it must have one")
    return found[0].public_bytes(Encoding.DER)


def allowed_clients(file: Path) -> frozenset[bytes]:
    """The public keys of the clients on a list: lines of 64 hexadecimal digits, each with a name after it if you like.

    Empty lines and lines that begin with # are skipped.
    """
    keys = set()
    for number, line in enumerate(_text(file).splitlines(), 1):
        word = line.split(maxsplit=1)[0] if line.split() else "#"
        if word.startswith("#"):
            continue
        if not re.fullmatch("[0-9a-fA-F]{64}", word):
            raise InputError(f"line {number} of {str(file)!r} must begin with 64 hexadecimal digits, as in client.pub")
        keys.add(bytes.fromhex(word))
    if not keys:
        raise InputError(f"{str(file)!r} lists no clients: put the lines of their files client.pub into it")
    return frozenset(keys)


def _private_keys(file: Path) -> list[PrivateKeyTypes]:
    keys = _loaded(file, "PRIVATE KEY", lambda block: load_pem_private_key(block, None))
    check_private(file)
    return keys


def check_private(file: Path) -> None:
    """Refuses a private key that other users of this machine may read."""
    if os.name == "posix" and file.is_file() and file.stat().st_mode & 0o077:
        raise InputError(f"{str(file)!r} is a private key, but others may read it: run chmod 600 on it")


def _loaded(file: Path, kind: str, load: Callable[[bytes], Kind]) -> list[Kind]:
    """The parts of a PEM file that are of one kind."""
    try:
        return [load(match[0].encode()) for match in _BLOCK.finditer(_text(file)) if match[1] == kind]
    except ValueError as error:
        raise InputError(f"{str(file)!r} has a damaged {kind.lower()}: {error}") from None


def _text(file: Path) -> str:
    try:
        return text_of(file)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {str(file)!r}: {getattr(error, 'strerror', None) or error}") from None
