"""Keystreams: the mask that a client adds, the sum of masks that the keeper answers with, and the keeper's blur."""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from hmac import digest

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fairlag.privacy.fixed import CHUNK, WHOLE, Words, parts

_ZEROS = memoryview(bytes(8 * CHUNK))


def keystream(seed: bytes, size: int, room: Words | None = None) -> Iterator[Words]:
    """ChaCha20 (RFC 8439, nonce and counter 0) as 64-bit numbers, in parts; each is valid until the next is read.

    The parts are written into `room`, which streams may share if each part is used before another stream is read.

    >>> [hex(word) for part in keystream(bytes(32), 1) for word in part]  # RFC 8439, appendix A.1, test vector 1
    ['0x903df1a0ade0b876']
    """
    # The seed is a key that is used for one stream only, so the nonce may be constant.
    stream = Cipher(ChaCha20(seed, bytes(16)), mode=None).encryptor()
    room = _room(size) if room is None else room
    for part in parts(size):
        now = room[: part.stop - part.start]
        stream.update_into(_ZEROS[: now.nbytes], now.data.cast("B"))
        yield now


def add_keystreams(total: Words, seeds: Sequence[bytes], weights: Sequence[int]) -> None:
    """Adds Σ a_j · keystream_j modulo 2^64 in place; a stream with weight 0 is not computed."""
    size, room = total.size, _room(total.size)
    streams = [(keystream(seed, size, room), np.uint64(a)) for seed, a in zip(seeds, weights, strict=True) if a]
    for part in parts(size):
        for stream, weight in streams:
            words = next(stream)
            words *= weight
            total[part] += words


def add_blur(total: Words, secret: bytes, seeds: Sequence[bytes], weights: Sequence[int]) -> None:
    """Adds a whole number to each coordinate in place, uniform from −2^23 to 2^23 − 1: half a quantum of the mean.

    Without it, the exact sum Σ a_j q_j would reveal single updates: with weights 2^23 + 1 and 2^23 − 1 it is
    2^23 (q_1 + q_2) + (q_1 − q_2), from which small q_1 and q_2 can be read. The numbers follow from the keeper's
    secret and the seeds and weights of the request, so that a simulation can repeat them and a server cannot.
    """
    said = b"".join(seed + weight.to_bytes(8, "little") for seed, weight in zip(seeds, weights, strict=True))
    stream = keystream(digest(secret, b"fairlag blur 1" + said, sha256), total.size)
    for part in parts(total.size):
        words = next(stream)
        words &= np.uint64(WHOLE - 1)
        total[part] += words - np.uint64(WHOLE // 2)


def _room(size: int) -> Words:
    return np.empty(min(size, CHUNK), "<u8")
