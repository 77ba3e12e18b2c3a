"""The allow-list of a deployment: the public keys of the nodes that may take part, in one file."""

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key

from fairlag.errors import InputError
from fairlag.limits import text_of
from fairlag.runtime.flower.nodes import fingerprint

_PARTS = 3
"""A line has a type, a key, and perhaps a comment."""


def allowed_nodes(file: str | Path) -> dict[str, str]:
    """The fingerprints of the keys on a list, each with its comment: one line per node, as in its file `.pub`.

    That is the file that `flwr supernode register` takes. Empty lines and lines that begin with # are skipped.
    """
    try:
        lines = text_of(Path(file)).splitlines()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read the allow-list {str(file)!r}: {why}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            found[_fingerprint(file, number, line)] = "".join(line.split(maxsplit=_PARTS - 1)[_PARTS - 1 :]).strip()
    if not found:
        raise InputError(f"the allow-list {str(file)!r} has no keys: put the lines of the nodes' files .pub into it")
    return found


def _fingerprint(file: str | Path, number: int, line: str) -> str:
    try:
        key = load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, EllipticCurvePublicKey):
        raise InputError(
            f"line {number} of the allow-list {str(file)!r} must be the public key of a node, as in its file .pub: "
            "'ecdsa-sha2-nistp384 AAAA…'"
        )
    return fingerprint(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))  # as Flower reports it
