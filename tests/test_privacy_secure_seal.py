"""Seals and keystreams, compared with twins in plain Python that follow RFC 5869, RFC 7748 and RFC 8439."""

import hmac
import struct
import tracemalloc
from collections.abc import Callable
from hashlib import sha256

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fairlag.errors import InputError
from fairlag.privacy.fixed import CHUNK
from fairlag.privacy.secure.client import mask
from fairlag.privacy.secure.seal import Origin, Sealed, opened, seal
from fairlag.privacy.secure.stream import add_keystreams, keystream

KEEPER, OTHER = (X25519PrivateKey.from_private_bytes(letter * 32) for letter in (b"k", b"o"))
SIGNER = Ed25519PrivateKey.from_private_bytes(b"c" * 32)
CLIENT = SIGNER.public_key().public_bytes_raw()
SEED, EPHEMERAL = bytes(range(32)), b"e" * 32


def public(key: X25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def made(run: str = "digits", task: int = 7, version: int = 3) -> Sealed:
    return seal(SEED, Origin(run, task, version), public(KEEPER), SIGNER, EPHEMERAL)


def chacha_block(key: bytes, counter: int, nonce: bytes) -> bytes:
    """RFC 8439, section 2.3."""
    start = [
        *struct.unpack("<4I", b"expand 32-byte k"),
        *struct.unpack("<8I", key),
        counter,
        *struct.unpack("<3I", nonce),
    ]
    state = list(start)

    def turned(word: int, bits: int) -> int:
        return (word << bits | word >> (32 - bits)) & 0xFFFFFFFF

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for x, y, z, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            state[x] = (state[x] + state[y]) & 0xFFFFFFFF
            state[z] = turned(state[z] ^ state[x], bits)

    for _ in range(10):
        for place in range(4):
            quarter(place, 4 + place, 8 + place, 12 + place)
        for place in range(4):
            quarter(place, 4 + (place + 1) % 4, 8 + (place + 2) % 4, 12 + (place + 3) % 4)
    return struct.pack("<16I", *((one + two) & 0xFFFFFFFF for one, two in zip(start, state, strict=True)))


def poly1305(key: bytes, message: bytes) -> bytes:
    """RFC 8439, section 2.5."""
    r, s = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF, int.from_bytes(key[16:], "little")
    total = 0
    for start in range(0, len(message), 16):
        total = (total + int.from_bytes(message[start : start + 16] + b"\x01", "little")) * r % (2**130 - 5)
    return ((total + s) % 2**128).to_bytes(16, "little")


def boxed(key: bytes, seed: bytes, data: bytes) -> bytes:
    """RFC 8439, section 2.8, for 32 bytes and the nonce 0."""
    stream = chacha_block(key, 1, bytes(12))
    text = bytes(one ^ two for one, two in zip(seed, stream, strict=False))
    padded = data + bytes(-len(data) % 16) + text + struct.pack("<QQ", len(data), len(text))
    return text + poly1305(chacha_block(key, 0, bytes(12))[:32], padded)


def x25519(secret: bytes, point: bytes) -> bytes:
    """RFC 7748, section 5."""
    p = 2**255 - 19
    k = int.from_bytes(secret, "little") & ~7 & ~(128 << 248) | 64 << 248
    x1 = int.from_bytes(point, "little") & (2**255 - 1)
    x2, z2, x3, z3 = 1, 0, x1, 1
    for bit in reversed(range(255)):
        swap = k >> bit & 1
        if swap:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a, b * b, d * a, c * b
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % p, x1 * (da - cb) ** 2 % p
        x2, z2 = aa * bb % p, e * (aa + 121665 * e) % p
        if swap:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return (x2 * pow(z2, p - 2, p) % p).to_bytes(32, "little")


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """RFC 5869, for 32 bytes."""
    return hmac.digest(hmac.digest(salt, secret, sha256), info + b"\x01", sha256)


def test_a_seal_is_what_the_documentation_says() -> None:
    sealed = made()
    info = b"fairlag seal 1" + struct.pack("<BQQ", 6, 7, 3) + CLIENT + b"digits"
    ephemeral = x25519(EPHEMERAL, bytes([9]) + bytes(31))
    key = hkdf(x25519(EPHEMERAL, public(KEEPER)), ephemeral + public(KEEPER), info)
    assert (sealed.task, sealed.version, sealed.client, sealed.ephemeral) == (7, 3, CLIENT, ephemeral)
    assert sealed.box == boxed(key, SEED, info)
    said = info + public(KEEPER) + ephemeral + sealed.box
    Ed25519PublicKey.from_public_bytes(CLIENT).verify(sealed.signature, said)
    packed = struct.pack("<QQ", 7, 3) + CLIENT + ephemeral + sealed.box + sealed.signature
    assert bytes(sealed) == packed
    assert Sealed.read(packed) == sealed


def test_a_seal_opens_for_its_keeper_run_task_version_and_client_only() -> None:
    sealed = made()
    assert opened(sealed, "digits", KEEPER) == SEED
    assert sealed.is_signed("digits", public(KEEPER))
    for run, key in (("digit", KEEPER), ("digits", OTHER)):
        assert opened(sealed, run, key) is None
        assert not sealed.is_signed(run, public(key))
    for size in range(0, Sealed.SIZE - 64, 8):
        data = bytearray(bytes(sealed))
        data[size] ^= 1
        changed = Sealed.read(bytes(data))
        assert opened(changed, "digits", KEEPER) is None
        assert not changed.is_signed("digits", public(KEEPER))


def test_a_seal_of_another_length_is_refused() -> None:
    with pytest.raises(InputError, match="a sealed seed has 191 bytes, it must have 192"):
        Sealed.read(bytes(made())[:-1])


@pytest.mark.parametrize(
    ("run", "task", "version", "reason"),
    [
        ("", 0, 0, "the run is ''"),
        ("é" * 128, 0, 0, "1 to 255 bytes"),
        ("a", -1, 0, "the task is -1"),
        ("a", 0, 2**64, "v"),
    ],
)
def test_an_origin_that_fits_no_seal_is_refused(run: str, task: int, version: int, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        Origin(run, task, version)


VECTORS = {
    # RFC 8439, appendix A.1: the key, the counter, and the keystream's block, for the nonce 0.
    1: (
        bytes(32),
        0,
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
    ),
    2: (
        bytes(32),
        1,
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
    ),
    3: (
        bytes(31) + b"\x01",
        1,
        "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
        "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0",
    ),
    4: (
        b"\x00\xff" + bytes(30),
        2,
        "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
        "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096",
    ),
}


@pytest.mark.parametrize("number", VECTORS)
def test_a_keystream_is_that_of_rfc_8439(number: int) -> None:
    key, counter, block = VECTORS[number]
    words = b"".join(part.tobytes() for part in keystream(key, 8 * counter + 8))
    assert words[64 * counter :].hex() == block
    assert chacha_block(key, counter, bytes(12)).hex() == block


@pytest.mark.parametrize("size", [1, CHUNK - 1, CHUNK, 2 * CHUNK + 3])
def test_a_long_keystream_is_one_stream_in_parts(size: int) -> None:
    whole = np.concatenate([part.copy() for part in keystream(SEED, size)])
    assert whole.size == size
    last = (size - 1) // 8
    assert whole[8 * last :].tobytes() == chacha_block(SEED, last, bytes(12))[: 8 * (size - 8 * last)]


def test_streams_are_added_with_their_weights_modulo_two_to_the_64() -> None:
    size, seeds, weights = CHUNK + 2, [b"1" * 32, b"2" * 32, b"3" * 32], [5, 0, 2**24 - 5]
    total = np.full(size, 2**64 - 1, np.uint64)
    add_keystreams(total, seeds, weights)
    for place in (0, CHUNK - 1, CHUNK, CHUNK + 1):
        blocks = [chacha_block(seed, place // 8, bytes(12)) for seed in seeds]
        words = [struct.unpack_from("<Q", block, 8 * (place % 8))[0] for block in blocks]
        exact = (2**64 - 1 + sum(a * word for a, word in zip(weights, words, strict=True))) % 2**64
        assert int(total[place]) == exact


def peak(call: Callable[[], object]) -> int:
    tracemalloc.start()
    call()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def test_masking_takes_the_memory_of_one_vector_and_many_streams_take_no_more() -> None:
    update, total = np.zeros(2**20, np.float32), np.zeros(CHUNK, np.uint64)
    vector, room = 8 * update.size, 8 * CHUNK
    assert peak(lambda: mask(update, Origin("digits", 0, 0), public(KEEPER), SIGNER)) < 1.2 * vector
    seeds = [number.to_bytes(32, "big") for number in range(300)]
    assert peak(lambda: add_keystreams(total, seeds, [1] * 300)) < 4 * room  # one room each would take 300
