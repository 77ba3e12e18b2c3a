"""Text as token ids without a vocabulary: characters of LEAF's alphabet, or bytes of UTF-8."""

from collections.abc import Sequence

import numpy as np

from fairlag.core.types import Integers

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's alphabet for Shakespeare, in its order (models/utils/language_utils.py there)."""

OTHER = len(LETTERS)
"""The id of every character that is not among them."""

NAMES = (*({"\n": "newline", " ": "space"}.get(letter, letter) for letter in LETTERS), "other")
"""What the characters are called."""

BYTES = 140
"""How many bytes of a text are kept, as long as messages of Sentiment140 are."""

_ASCII = 128
# Python finds −1 if there is none, which is OTHER modulo OTHER + 1.
_IDS = np.array([LETTERS.find(chr(point)) % (OTHER + 1) for point in range(_ASCII)])


def letters(texts: Sequence[str]) -> Integers:
    """The place of each character in LEAF's alphabet; the texts have the same length.

    >>> letters(["A z", "}é\\n"]).tolist()
    [[25, 1, 78], [79, 80, 0]]
    """
    points = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), "<u4").reshape(len(texts), -1)
    ids: Integers = _IDS[np.minimum(points, _ASCII - 1)]
    return ids


def utf8(texts: Sequence[str]) -> Integers:
    """The first bytes of each text as numbers, with 0 after the end of a shorter one.

    >>> utf8(["hé"])[0, :4].tolist(), utf8(["hé"]).shape
    ([104, 195, 169, 0], (1, 140))
    """
    kept = [text.encode("utf-8", "replace")[:BYTES].ljust(BYTES, b"\0") for text in texts]
    return np.frombuffer(b"".join(kept), np.uint8).reshape(len(texts), BYTES).astype(np.int64)
