"""The keeper's real process over TLS: who cheats is refused, after kill -9 too, and nothing random gets an answer."""

import random
import signal
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pytest

from fairlag.errors import InputError, KeeperError, RefusedError
from fairlag.privacy.secure.frames import context, receive, send
from fairlag.privacy.secure.keys import make_keys
from fairlag.privacy.secure.link import KeeperLink
from fairlag.privacy.secure.process import address
from fairlag.privacy.secure.server import mean_of
from fairlag.privacy.secure.wire import MOST_REQUEST, Terms, read_reply
from tests.support.keeper_process import Started, files, started
from tests.support.secure import BOUND, EVEN, LEAST, REFUSED, RUN, SIZE, asked, updates


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    with started(files(tmp_path_factory.mktemp("keeper"))) as keeper:
        yield keeper


def check_answers(keeper: Started) -> None:
    """A good request gets its answer: (0.5 + 1.5 + 2.5) / 3 = 1.5."""
    assert mean_of(RUN, updates(LEAST), EVEN, keeper.link().ask) == pytest.approx(1.5, abs=2**-20)


@pytest.mark.parametrize("name", REFUSED)
def test_the_process_refuses_who_cheats_and_uses_up_no_seed(shared: Started, name: str) -> None:
    make, reason = REFUSED[name]
    masked, link = updates(LEAST), shared.link()
    with pytest.raises(RefusedError, match=f"^the keeper refused: .*{reason}"):
        read_reply(link.ask(make(masked)), SIZE)
    assert mean_of(RUN, masked, EVEN, link.ask) == pytest.approx(1.5, abs=2**-20)


def test_a_request_sent_again_is_refused(shared: Started) -> None:
    request, link = asked(updates(LEAST)), shared.link()
    assert len(read_reply(link.ask(request), SIZE)) == 8 * SIZE
    with pytest.raises(RefusedError, match="the seed of update 0 was used before"):
        read_reply(link.ask(request), SIZE)


def test_two_sums_that_differ_in_one_update_are_refused(shared: Started) -> None:
    """Differencing: the sums of {0, 1, 2} and {0, 1, 2, 3} would give away update 3."""
    masked, link = updates(4), shared.link()
    mean_of(RUN, masked[:3], EVEN, link.ask)
    with pytest.raises(RefusedError, match="the seed of update 0 was used before"):
        mean_of(RUN, masked, [2**22] * 4, link.ask)


def test_kill_9_forgets_no_used_seed(tmp_path: Path) -> None:
    masked, fresh = updates(LEAST), updates(LEAST, first=10)
    with started(files(tmp_path)) as keeper:
        mean_of(RUN, masked, EVEN, keeper.link().ask)
        keeper.end()
    with started(tmp_path) as keeper:
        assert f"{LEAST} seeds are used up" in keeper.lines[0]
        with pytest.raises(RefusedError, match="the seed of update 1 was used before"):
            mean_of(RUN, [fresh[0], masked[1], fresh[2]], EVEN, keeper.link().ask)
        assert mean_of(RUN, fresh, EVEN, keeper.link().ask) == pytest.approx(1.5, abs=2**-20)


@pytest.mark.slow
def test_kill_9_at_any_moment_leaves_no_answered_seed_unused(tmp_path: Path) -> None:
    files(tmp_path)
    answered: list[bytes] = []
    for delay in (0.05, 0.1, 0.2, 0.4):
        with started(tmp_path) as keeper:
            link = keeper.link(attempts=1)
            for request in answered:
                with pytest.raises(RefusedError, match="the seed of update 0 was used before"):
                    read_reply(link.ask(request), SIZE)
            Timer(delay, keeper.process.kill).start()
            with pytest.raises(KeeperError):
                while True:
                    request = asked(updates(LEAST))
                    read_reply(link.ask(request), SIZE)
                    answered.append(request)
    assert answered


def test_a_server_with_another_certificate_is_not_answered(shared: Started, tmp_path: Path) -> None:
    make_keys(tmp_path, "server")
    link = KeeperLink(shared.address, tmp_path / "server.key", shared.folder / "keeper.pub", SIZE)
    with pytest.raises(KeeperError, match=r"does not accept this server .* server\.pub\?$"):
        link.ask(asked(updates(LEAST)))
    check_answers(shared)


def test_a_server_without_a_certificate_is_not_answered(shared: Started) -> None:
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname, bare.verify_mode = False, ssl.CERT_NONE
    raw = socket.create_connection(address(shared.address), 60)
    with bare.wrap_socket(raw) as connection, pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
        receive(connection, 1000, 60)
    check_answers(shared)


def test_a_keeper_with_another_certificate_is_not_asked(shared: Started, tmp_path: Path) -> None:
    make_keys(tmp_path, "keeper")
    link = KeeperLink(shared.address, shared.folder / "server.key", tmp_path / "keeper.pub", SIZE)
    with pytest.raises(KeeperError, match="is not the keeper whose certificate is pinned"):
        link.ask(asked(updates(LEAST)))


def connected(keeper: Started) -> ssl.SSLSocket:
    """A server's connection, as its bytes: the keeper has greeted."""
    made = context(ssl.PROTOCOL_TLS_CLIENT, keeper.folder / "server.key", keeper.folder / "keeper.pub")
    connection = made.wrap_socket(socket.create_connection(address(keeper.address), 60))
    assert Terms.read(receive(connection, 1000, 60) or b"") == Terms(RUN, SIZE, LEAST, BOUND)
    return connection


def test_a_frame_that_is_too_long_is_refused_before_it_is_read(shared: Started) -> None:
    with connected(shared) as connection:
        connection.sendall(struct.pack("<Q", MOST_REQUEST + 1))
        with pytest.raises(RefusedError, match="a frame has 13,107,477 bytes, it must have at most 13,107,476"):
            read_reply(receive(connection, 5000, 60) or b"", SIZE)
        assert receive(connection, 5000, 60) is None


def test_connections_that_stop_in_the_middle_disturb_no_other(shared: Started) -> None:
    silent = socket.create_connection(address(shared.address), 60)
    greeted, half = connected(shared), connected(shared)
    half.sendall(struct.pack("<Q", 500) + b"half")
    check_answers(shared)
    for each in (silent, greeted, half):
        each.close()
    check_answers(shared)


def test_1000_random_and_changed_requests_get_no_answer(shared: Started) -> None:
    dice = random.Random(20)
    good = asked(updates(LEAST))
    with connected(shared) as connection:
        for number in range(1000):
            send(connection, changed(good, dice) if number % 2 else dice.randbytes(dice.randrange(1000)), 60)
            with pytest.raises(RefusedError):
                read_reply(receive(connection, 5000, 60) or b"", SIZE)
        # None of them has used up a seed, and the same connection still works.
        send(connection, good, 60)
        assert len(read_reply(receive(connection, 5000, 60) or b"", SIZE)) == 8 * SIZE


def changed(good: bytes, dice: random.Random) -> bytes:
    """A good request with a few wrong bytes, cut, or with bytes that are too many."""
    data, place = bytearray(good), dice.randrange(len(good))
    how = dice.randrange(4)
    if how == 0:
        return bytes(data[:place])
    if how == 1:
        return bytes(data[:place]) + dice.randbytes(dice.randrange(1, 300)) + bytes(data[place:])
    for _ in range(1 if how == 2 else 20):
        data[dice.randrange(len(data))] ^= dice.randrange(1, 256)
    return bytes(data)


def test_random_bytes_instead_of_tls_disturb_nobody(shared: Started) -> None:
    dice = random.Random(20)
    for _ in range(50):
        with socket.create_connection(address(shared.address), 60) as raw:
            raw.sendall(dice.randbytes(dice.randrange(1, 300)))
    check_answers(shared)


def test_the_log_has_the_verdicts_and_no_secret(tmp_path: Path) -> None:
    masked = updates(LEAST)
    with started(files(tmp_path)) as keeper:
        mean_of(RUN, masked, EVEN, keeper.link().ask)
        with pytest.raises(RefusedError):
            mean_of(RUN, masked, EVEN, keeper.link().ask)
        keeper.process.send_signal(signal.SIGINT)
        assert keeper.ended() == 0
        first, listening, answered, refused, stopped = "".join(keeper.lines).splitlines()
    assert first == (
        "keeper of run 'digits': 5 parameters, at least 3 of 6 clients in a sum, each with at most 0.6 of the weight; "
        "0 seeds are used up"
    )
    assert listening.startswith("listening on 127.0.0.1:")
    assert answered.endswith(": answered")
    assert refused.endswith(": the keeper refused: the seed of update 0 was used before")
    assert stopped == "stopped"


def test_sigterm_ends_it_cleanly_and_another_can_start(tmp_path: Path) -> None:
    with started(files(tmp_path)) as keeper:
        keeper.process.terminate()
        assert keeper.ended() == 0
    with started(tmp_path) as keeper:
        check_answers(keeper)


def test_the_terms_are_told(shared: Started) -> None:
    assert shared.link().terms() == Terms(RUN, SIZE, LEAST, BOUND)


def test_nobody_at_the_address_is_an_error_after_some_attempts(shared: Started) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    link = KeeperLink(f"127.0.0.1:{port}", shared.folder / "server.key", shared.folder / "keeper.pub", SIZE, attempts=2)
    with pytest.raises(KeeperError, match=f"^cannot reach the keeper at 127.0.0.1:{port} in 2 attempts: "):
        link.ask(b"")


def test_a_link_tries_again_until_a_keeper_greets(shared: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """First the port is closed, then the keeper closes the connection, as if it had too many."""
    real, tried = socket.create_connection, []

    def late(where: tuple[str, int], seconds: float) -> socket.socket:
        tried.append(where)
        if len(tried) == 1:
            raise ConnectionRefusedError
        if len(tried) == 2:
            own, other = socket.socketpair()
            other.close()
            return own
        return real(where, seconds)

    monkeypatch.setattr("fairlag.privacy.secure.link.create_connection", late)
    check_answers(shared)
    assert len(tried) == 3


@pytest.mark.parametrize("text", ["127.0.0.1", ":80", "127.0.0.1:http", "127.0.0.1:65536", ""])
def test_an_address_needs_a_host_and_a_port(text: str) -> None:
    with pytest.raises(InputError, match="it must be HOST:PORT"):
        address(text)
