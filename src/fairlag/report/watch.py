"""Serves a page that follows runs: read-only, rebuilt on request if a run on disk has changed."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from socket import AF_INET, AF_INET6, SHUT_RDWR, socket
from time import monotonic
from typing import Any, ClassVar, NamedTuple

from fairlag.report.page import shell
from fairlag.report.page.spec import Page

Address = tuple[str, int]

_AT_LEAST = 1.0
"""Seconds between two looks at the disk, whatever the number of readers."""

IDLE = 20.0
"""Seconds that a connection may be idle; an open page sends a request every two seconds."""

CONNECTIONS = 256
"""The most connections that may be open at once: each has a thread."""

_REFUSAL, _REQUEST = 0.05, 65_536
"""Seconds and bytes for the request of a connection that is refused."""

_FULL = f"There are {CONNECTIONS} readers already: try again in a few seconds.\n"
_BUSY = (
    "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nConnection: close\r\nContent-Type: text/plain\r\n"
    f"Content-Length: {len(_FULL)}\r\n\r\n{_FULL}"
).encode()

_COSTLY = 4
"""The pause before a page is rebuilt, as a multiple of the time the last one took: the run comes first."""


class Answer(NamedTuple):
    """The data of a page, and its entity tag."""

    body: bytes
    tag: str


class Follower:
    """The newest page of some runs, the same for all requests at the same time."""

    def __init__(self, state: Callable[[], object], build: Callable[[], Page]) -> None:
        """`state` is cheap and differs when the page would; `build` makes the page."""
        self._state = state
        self._build = build
        self._lock = threading.Lock()
        self._seen: object = None
        self._answer = Answer(b"", "")
        self._next = 0.0

    def answer(self) -> Answer:
        """The page as it is now or was a moment ago: while one reader has it rebuilt, all others get the last one."""
        if self._lock.acquire(blocking=not self._answer.body):
            try:
                if monotonic() >= self._next:
                    self._renew()
            finally:
                self._lock.release()
        return self._answer

    def _renew(self) -> None:
        began, state, first = monotonic(), self._state(), not self._answer.body
        try:
            if first or state != self._seen:
                body = shell.data(self._build()).encode(errors="replace")
                self._answer = Answer(body, f'"{sha256(body).hexdigest()[:32]}"')
                self._seen = state
        finally:
            took = 0.0 if first else monotonic() - began  # the first build mostly loads libraries
            self._next = monotonic() + max(_AT_LEAST, _COSTLY * took)


class Server(ThreadingHTTPServer):
    """Serves a page that follows runs, until it is shut down.

    Connections without a complete request cannot block others: they are closed after `IDLE` seconds, and if
    `CONNECTIONS` are open, the one without a request for longest makes room for the next. If all are being answered,
    the next one gets status 503, unless an answer takes longer than `IDLE` seconds.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: Address, title: str, follower: Follower) -> None:
        self.address_family = AF_INET6 if ":" in address[0] else AF_INET
        self.follower = follower
        self.page = shell.shell(title, "page.json", "plotly.js").encode()
        self.plotly = shell.plotly().encode()
        self._open: dict[socket, float | None] = {}
        """Every connection, and when its answer began; those that wait for a request in the order of their last one."""
        self._opening = threading.Lock()
        super().__init__(address, _Handler)

    def process_request(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        """Makes room for a connection, and serves it in its own thread; refuses it if there is no room."""
        assert isinstance(request, socket)
        with self._opening:
            room = len(self._open) < CONNECTIONS or self._make_room()
            if room:
                self._open[request] = None
        if room:
            super().process_request(request, client_address)
        else:
            with suppress(OSError):
                request.settimeout(_REFUSAL)
                request.sendall(_BUSY)
                request.recv(_REQUEST)  # unread data would make the system drop the answer when it closes
            self.shutdown_request(request)

    def _make_room(self) -> bool:
        """Closes the connection that waits for a request for longest, or one that does not take its answer."""
        late = monotonic() - IDLE
        waiting = (each for each, began in self._open.items() if began is None)
        slow = (each for each, began in self._open.items() if began is not None and began < late)
        found = next(waiting, None) or next(slow, None)
        if found is not None:
            del self._open[found]
            with suppress(OSError):  # its thread wakes up and closes it
                found.shutdown(SHUT_RDWR)
        return found is not None

    @contextmanager
    def answering(self, request: socket) -> Iterator[None]:
        """Inside, a connection is being answered, so it does not make room for others."""
        self._note(request, monotonic())
        try:
            yield
        finally:
            self._note(request, None)

    def _note(self, request: socket, began: float | None) -> None:
        with self._opening:
            if request in self._open:  # it may have made room already
                del self._open[request]
                self._open[request] = began

    def shutdown_request(self, request: socket | tuple[bytes, socket]) -> None:
        """Closes a connection."""
        assert isinstance(request, socket)
        with self._opening:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores a browser that disconnects; prints any other error and continues."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            print(f"fairlag: could not serve a page: {error!r}", file=sys.stderr, flush=True)

    @property
    def address(self) -> str:
        """The address for a browser."""
        host, port = self.server_address[:2]
        name = str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}/"

    def answers(self, host: str) -> bool:
        """Is this a host name that a browser may use? Another site must not read the page through a name of its own.

        A server that other machines can reach accepts any name.
        """
        if not is_loopback(str(self.server_address[0])):
            return True
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        return name == "localhost" or is_loopback(name.strip("[]"))


def is_loopback(host: str) -> bool:
    """Is this an address that only this machine can reach?

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE
    server: Server
    _KINDS: ClassVar[dict[str, str]] = {
        "/": "text/html; charset=utf-8",
        "/plotly.js": "text/javascript; charset=utf-8",
        "/page.json": "application/json",
    }

    def do_GET(self) -> None:
        """The page, its data, or plotly's script."""
        with self.server.answering(self.connection):
            self._answer()

    do_HEAD = do_GET

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        if not self.server.answers(self.headers.get("Host", "")):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
        elif path not in self._KINDS:
            self.send_error(HTTPStatus.NOT_FOUND)
        elif path == "/page.json":
            self._send(path, *self.server.follower.answer())
        else:
            self._send(path, self.server.page if path == "/" else self.server.plotly)

    def _send(self, path: str, body: bytes, tag: str = "") -> None:
        known = bool(tag) and self.headers.get("If-None-Match") == tag
        self.send_response(HTTPStatus.NOT_MODIFIED if known else HTTPStatus.OK)
        self.send_header("Content-Type", self._KINDS[path])
        self.send_header("Content-Length", "0" if known else str(len(body)))
        self.send_header("Cache-Control", "max-age=3600" if path == "/plotly.js" else "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()
        if not known and self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: a browser sends a request every two seconds."""
