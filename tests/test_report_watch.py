"""`fairlag watch`: a real server and a real run, killed and resumed while a real browser looks on."""

import http.client
import json
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from time import sleep
from urllib.parse import urlsplit

import pytest

from fairlag.cli.report import watched
from fairlag.lab.experiment import parse
from fairlag.lab.plan import Plan
from fairlag.lab.simulate import execute
from fairlag.report.page.build import waiting_page
from fairlag.report.watch import CONNECTIONS, Answer, Follower, Server
from tests.support.browser import chromium, visiting
from tests.support.command import Call
from tests.support.damage import DAMAGES, spoilt
from tests.support.experiments import SMALL
from tests.support.patience import PATIENCE


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "fairlag", *words]


@contextmanager
def following(folder: Path, *words: str) -> Iterator[str]:
    """The address of a server that follows a folder; Ctrl-C ends it, without a complaint."""
    server = subprocess.Popen(
        command("watch", str(folder), *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        said = server.stdout.readline()
        assert said.startswith(f"Following {folder} at http://127.0.0.1:"), said
        yield said.split()[-1]
        server.send_signal(signal.SIGINT)
        _, complaints = server.communicate(timeout=PATIENCE)
        assert (server.returncode, complaints) == (0, "")
    finally:
        server.kill()
        server.communicate()


@contextmanager
def killed(words: list[str]) -> Iterator[None]:
    """A process that is killed at the end, without a chance to tidy up."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


def asked(address: str, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    where = urlsplit(address)
    line = http.client.HTTPConnection(where.hostname or "", where.port, timeout=PATIENCE)
    try:
        line.request(method, path, headers=headers)
        answer = line.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        line.close()


def test_it_answers_the_page_to_this_machine_alone_and_only_to_read(tmp_path: Path) -> None:
    with following(tmp_path) as address:
        status, headers, body = asked(address, "/")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert b"http://" not in body.replace(b"http://www.w3.org", b"")
        status, headers, body = asked(address, "/page.json")
        assert (status, json.loads(body)["sections"]) == (200, [])
        assert "there are no runs" in json.loads(body)["lead"][0]
        assert asked(address, "/page.json", **{"If-None-Match": headers["ETag"]})[::2] == (304, b"")
        assert asked(address, "/page.json", **{"If-None-Match": '"other"'})[0] == 200
        assert asked(address, "/", "HEAD")[2] == b""
        assert asked(address, "/../run.sqlite")[0] == 404
        assert asked(address, "/", "POST")[0] == 501
        assert asked(address, "/page.json", Host="evil.example")[0] == 421
        assert asked(address, "/page.json", Host="localhost:80")[0] == 200


def test_a_page_is_built_once_for_all_who_ask_and_again_when_a_run_has_changed() -> None:
    built: list[int] = []
    state = [0]

    def build() -> "object":
        built.append(state[0])
        return waiting_page(f"page {state[0]}", "because")

    follower = Follower(lambda: list(state), build)  # type: ignore[arg-type]
    first = follower.answer()
    assert follower.answer() == first
    state[0] = 1
    follower._next = 0.0  # time passes
    second = follower.answer()
    assert second.tag != first.tag
    follower._next = 0.0
    assert follower.answer() == second
    assert built == [0, 1]


def test_a_page_that_is_being_rebuilt_holds_up_nobody() -> None:
    state, begun, go = [0], threading.Event(), threading.Event()

    def build() -> "object":
        if state[0]:
            begun.set()
            assert go.wait(PATIENCE)
        return waiting_page(f"page {state[0]}", "because")

    follower = Follower(lambda: list(state), build)  # type: ignore[arg-type]
    first = follower.answer()
    state[0] = 1
    follower._next = 0.0  # time passes
    found: list[Answer] = []
    builder = threading.Thread(target=lambda: found.append(follower.answer()))
    builder.start()
    assert begun.wait(PATIENCE)
    assert follower.answer() == first
    go.set()
    builder.join(PATIENCE)
    assert [follower.answer()] == found != [first]


def test_what_the_first_page_took_does_not_delay_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def build() -> "object":
        now[0] += 5.0
        return waiting_page(f"page at {now[0]}", "because")

    monkeypatch.setattr("fairlag.report.watch.monotonic", lambda: now[0])
    follower = Follower(lambda: now[0], build)  # type: ignore[arg-type]
    first = follower.answer()
    now[0] += 1.5
    second = follower.answer()
    assert second != first
    now[0] += 19.0
    assert follower.answer() == second
    now[0] += 1.5
    assert follower.answer() != second


def test_a_run_that_cannot_be_read_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    execute(Plan(parse(SMALL), (0, 1), tmp_path / "runs"), new=True, workers=1)
    folder = tmp_path / "runs/fairshare-buffer-2-seed1"
    for how in ("no database", "{"):
        spoilt(folder, how)
    with following(tmp_path) as address:
        page = json.loads(asked(address, "/page.json")[2])
        assert page["status"] == "1 of 1 runs finished; 1 more cannot be read"
        assert page["lead"][-1].startswith(f"Left out: there is no run in {str(folder)!r}")
        assert page["facts"]["aggregations"] == "20"
        shutil.rmtree(tmp_path / "runs/fairshare-buffer-2-seed0")
        sleep(1.1)
        page = json.loads(asked(address, "/page.json")[2])
        assert page["lead"][0].startswith(f"Nothing to show yet: there is no run in {str(folder)!r}")


def test_a_browser_that_goes_away_is_no_mishap(tmp_path: Path) -> None:
    with following(tmp_path) as address:
        where = urlsplit(address)
        for _ in range(3):
            line = socket.create_connection((where.hostname, where.port))
            line.sendall(b"GET /plotly.js HTTP/1.1\r\nHost: localhost\r\n\r\n")
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # gone at once
            line.close()
        assert asked(address, "/")[0] == 200


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    """A server in this process."""
    with watched(folder, ("127.0.0.1", 0)) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def stalled(server: Server) -> socket.socket:
    """A connection that never says what it wants."""
    line = socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=PATIENCE)
    line.sendall(b"GET /page.json HTTP/1.1\r\n")
    return line


def test_many_stalled_connections_keep_nobody_from_being_answered(tmp_path: Path) -> None:
    with served(tmp_path) as server, ExitStack() as held:
        lines = [held.enter_context(closing(stalled(server))) for _ in range(CONNECTIONS + 40)]
        assert asked(server.address, "/page.json")[0] == 200
        assert [line.recv(1) for line in lines[:40]] == [b""] * 40  # the oldest were closed
        lines[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            lines[-1].recv(1)


def test_who_is_being_answered_is_not_cut_off_and_one_more_is_told_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path) as server, ExitStack() as held:
        answer, begun, go = server.follower.answer(), threading.Semaphore(0), threading.Event()

        def slow() -> Answer:
            begun.release()
            assert go.wait(PATIENCE)
            return answer

        monkeypatch.setattr(server.follower, "answer", slow)
        lines = []
        for _ in range(CONNECTIONS):
            lines.append(held.enter_context(closing(stalled(server))))
            lines[-1].sendall(b"Host: localhost\r\n\r\n")
            assert begun.acquire(timeout=PATIENCE)
        status, headers, body = asked(server.address, "/")
        assert (status, headers["Retry-After"]) == (503, "2")
        assert body == b"There are 256 readers already: try again in a few seconds.\n"
        monkeypatch.setattr("fairlag.report.watch.IDLE", 0.0)  # as if all had not taken their answers for long
        assert asked(server.address, "/")[0] == 200
        go.set()
        answers = [line.recv(15) for line in lines]
        assert answers.count(b"HTTP/1.1 200 OK") == CONNECTIONS - 1 and answers[0] == b""


def test_a_connection_that_says_nothing_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path) as server:
        monkeypatch.setattr(server.RequestHandlerClass, "timeout", 0.1)
        with closing(stalled(server)) as line:
            assert line.recv(1) == b""


def test_a_page_that_cannot_be_made_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(Plan(parse(SMALL), (0,), tmp_path / "runs"), new=True, workers=1)

    def broken(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("fairlag.cli.report.runs_page", broken)
    with served(tmp_path) as server:
        status, _, body = asked(server.address, "/page.json")
    assert status == 200
    assert "the page cannot be made (MemoryError" in json.loads(body)["lead"][0]


@pytest.mark.slow
def test_a_damaged_run_is_named_on_the_page_beside_good_ones(tmp_path: Path) -> None:
    execute(Plan(parse(SMALL), (0, 1, 2), tmp_path / "runs"), new=True, workers=1)
    DAMAGES["an endless view"](tmp_path / "runs/fairshare-buffer-2-seed1")
    with served(tmp_path) as server, chromium() as browser, visiting(browser, server.address) as visit:
        assert "1 more cannot be read" in visit.page.inner_text("#status")
        assert "seed1' cannot be read: its view 'tasks' is computed" in visit.page.inner_text("#lead")
        assert visit.page.evaluate("document.querySelectorAll('.plot .main-svg').length") > 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nowhere",), "there is no folder 'nowhere'"),
        ((".", "--port", "70000"), "--port is 70000, it must be between 0 and 65535"),
        ((".", "--host", "256.0.0.1"), "cannot listen on '256.0.0.1', port 0"),
        ((".", "--workers", "0"), "--workers is 0, it must be at least 1"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call("watch", *words)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err


def test_a_port_that_is_taken_is_refused(call: Call, tmp_path: Path) -> None:
    with following(tmp_path) as address:
        port = str(urlsplit(address).port)
        done = call("watch", str(tmp_path), "--port", port)
        assert done.code == 2
        assert f"cannot listen on '127.0.0.1', port {port}" in done.err


@pytest.mark.slow
def test_it_follows_a_run_through_a_crash_and_a_resume(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    status = "document.querySelector('#status').textContent"
    reached = f"Number(({status}.match(/at ([0-9,]+) of 1,000,000/) || ['', '0'])[1].replaceAll(',', ''))"
    endless = (
        "--strategy",
        "fairshare",
        "--set",
        "aggregations=1000000",
        "--workers",
        "1",
    )  # it is killed, not finished
    run = command("run", "demo", *endless, "--out", str(folder / "demo"))
    with following(folder) as address, chromium() as browser, visiting(browser, address) as visit:
        assert "there are no runs" in visit.page.inner_text("#lead")
        with killed(run):
            visit.until(f"{status}.includes('FairShare, seed 0: running') && {reached} > 0")
            visit.until("document.querySelectorAll('#chart-accuracy .plot .trace').length > 0")
            seen = visit.page.evaluate(reached)
            visit.until(f"{reached} > {seen}")
        visit.until(f"{status}.includes('interrupted at')")
        seen = visit.page.evaluate(reached)
        with killed(command("resume", str(folder / "demo"), "--workers", "1")):
            visit.until(f"{status}.includes('running') && {reached} > {seen}")
