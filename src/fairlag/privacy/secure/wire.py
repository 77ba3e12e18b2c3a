"""The bytes of the keeper's greeting, of a request to it, and of its reply."""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from fairlag.errors import KeeperError, RefusedError
from fairlag.privacy.secure.seal import Sealed

_HEAD = Struct("<8sQIB")
_MAGIC = b"fairlag1"
_WEIGHT = Struct("<q")
_EACH = Sealed.SIZE + _WEIGHT.size
MOST_UPDATES = 65_536
"""The most updates in a request."""

MOST_REQUEST = _HEAD.size + 255 + MOST_UPDATES * _EACH
"""The most bytes of a request."""

_TERMS = Struct("<8sQQdB")
MOST_GREETING = _TERMS.size + 255
"""The most bytes of a greeting."""

_ANSWER, _REFUSAL = b"\x00", b"\x01"
_PLACE = Struct("<i")
_MOST_REFUSAL = 5 + 4_000


@dataclass(frozen=True, slots=True)
class Terms:
    """What the keeper tells a server that connects: its run, number of parameters, least clients, and bound.

    >>> Terms.read(bytes(Terms("digits", 650, 5, 0.6)))
    Terms(run='digits', size=650, least=5, bound=0.6)
    """

    run: str
    size: int
    least: int
    bound: float

    def __bytes__(self) -> bytes:
        run = self.run.encode()
        return _TERMS.pack(_MAGIC, self.size, self.least, self.bound, len(run)) + run

    @classmethod
    def read(cls, data: bytes) -> "Terms":
        """The terms with these bytes."""
        if len(data) < _TERMS.size or data[:8] != _MAGIC or len(data) != _TERMS.size + data[_TERMS.size - 1]:
            raise KeeperError("what answers at the keeper's address does not speak fairlag's protocol")
        _, size, least, bound, _ = _TERMS.unpack_from(data)
        return cls(data[_TERMS.size :].decode(errors="replace"), size, least, bound)


@dataclass(frozen=True, slots=True)
class Request:
    """A request: the run, the number of parameters, and a sealed seed and a whole weight per update."""

    run: str
    size: int
    sealed: tuple[Sealed, ...]
    weights: tuple[int, ...]

    def __bytes__(self) -> bytes:
        run = self.run.encode()
        pairs = zip(self.sealed, self.weights, strict=True)
        body = b"".join(bytes(sealed) + _WEIGHT.pack(weight) for sealed, weight in pairs)
        return _HEAD.pack(_MAGIC, self.size, len(self.sealed), len(run)) + run + body

    @classmethod
    def read(cls, data: bytes) -> "Request":
        """The request with these bytes; raises ValueError with a sentence if they are not one."""
        if len(data) < _HEAD.size:
            raise ValueError(f"the request has {len(data)} bytes, it must have at least {_HEAD.size}")
        magic, size, count, length = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise ValueError("the request does not begin with 'fairlag1'")
        if count > MOST_UPDATES:
            raise ValueError(f"the request has {count:,} updates, it must have at most {MOST_UPDATES:,}")
        begin = _HEAD.size + length
        if len(data) != begin + count * _EACH:
            raise ValueError(f"the request has {len(data)} bytes, {count} updates need {begin + count * _EACH}")
        try:
            run = data[_HEAD.size : begin].decode()
        except UnicodeDecodeError:
            raise ValueError("the name of the run is not UTF-8") from None
        if not run:
            raise ValueError("the request names no run")
        starts = range(begin, len(data), _EACH)
        sealed = tuple(Sealed.read(data[start : start + Sealed.SIZE]) for start in starts)
        weights = tuple(_WEIGHT.unpack_from(data, start + Sealed.SIZE)[0] for start in starts)
        return cls(run, size, sealed, weights)


def most_reply(size: int) -> int:
    """The most bytes of a reply, for a model with this number of parameters."""
    return max(1 + 8 * size, _MOST_REFUSAL)


def refusal(sentence: str, update: int | None = None) -> bytes:
    """The reply that refuses, and the place of the update that is the reason, if one is."""
    return _REFUSAL + _PLACE.pack(-1 if update is None else update) + sentence.encode()[: _MOST_REFUSAL - 5]


def answer(total: memoryview) -> bytes:
    """The reply with the sum of the masks."""
    return _ANSWER + total


def read_reply(data: bytes, size: int) -> memoryview:
    """The sum of the masks in a reply; raises RefusedError if the keeper refused."""
    if data[:1] == _REFUSAL and len(data) >= 5:
        (place,) = _PLACE.unpack_from(data, 1)
        raise RefusedError(f"the keeper refused: {data[5:].decode(errors='replace')}", None if place < 0 else place)
    if data[:1] != _ANSWER or len(data) != 1 + 8 * size:
        raise KeeperError(f"the keeper sent {len(data):,} bytes, which are no reply for {size:,} parameters")
    return memoryview(data)[1:]


def request(run: str, size: int, sealed: Sequence[Sealed], weights: Sequence[int]) -> bytes:
    """The bytes of a request for the sum of these masks with these whole weights.

    >>> Request.read(request("digits", 650, [], [])).size
    650
    """
    return bytes(Request(run, size, tuple(sealed), tuple(weights)))
