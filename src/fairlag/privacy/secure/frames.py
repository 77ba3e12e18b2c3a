"""What the keeper and the server share on the wire: TLS with pinned certificates, and frames of bounded length."""

import ssl
from pathlib import Path
from socket import IPPROTO_TCP, TCP_NODELAY, socket
from struct import Struct
from time import monotonic

from fairlag.errors import InputError
from fairlag.privacy.secure.keys import certificate, check_private

_LENGTH = Struct("<Q")
_PIECE = 2**20


class FrameError(OSError):
    """The other side sent a frame that is too long, or ended in the middle of one."""


class TooLongError(FrameError):
    """The other side announced a frame that is too long."""


def context(side: int, own: Path, other: Path) -> ssl.SSLContext:
    """TLS 1.3 for one side: its own key and certificate, and the only certificate that the other side may have."""
    made = ssl.SSLContext(side)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False  # the certificate is pinned, so the name of the host does not matter
    made.verify_mode = ssl.CERT_REQUIRED
    check_private(own)
    try:
        made.load_cert_chain(own)
    except OSError:
        raise InputError(f"{str(own)!r} has no key and certificate for TLS: give keeper.key or server.key") from None
    made.load_verify_locations(cadata=certificate(other))
    return made


def send(connection: socket, frame: bytes, seconds: float) -> None:
    """Sends a frame within a time."""
    connection.settimeout(seconds)
    connection.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)  # or the frame would wait until the length is acknowledged
    connection.sendall(_LENGTH.pack(len(frame)))
    connection.sendall(frame)


def receive(connection: socket, most: int, seconds: float) -> bytes | None:
    """The next frame, within a time and a number of bytes; None if the other side has closed the connection."""
    until = monotonic() + seconds
    head = _exactly(connection, _LENGTH.size, until)
    if not head:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > most:
        raise TooLongError(f"a frame has {length:,} bytes, it must have at most {most:,}")
    body = _exactly(connection, length, until)
    if length and not body:
        raise FrameError("the connection ended in the middle of a frame")
    return body


def _exactly(connection: socket, count: int, until: float) -> bytes:
    """This number of bytes, or none if the connection ends before the first."""
    # Grows with what arrives: a length alone makes nobody reserve memory.
    data = bytearray()
    while len(data) < count:
        connection.settimeout(max(until - monotonic(), 0.001))
        piece = connection.recv(min(count - len(data), _PIECE))
        if not piece and not data:
            return b""
        if not piece:
            raise FrameError("the connection ended in the middle of a frame")
        data += piece
    return bytes(data)
