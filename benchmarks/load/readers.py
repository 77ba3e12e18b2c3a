"""Load on `fairlag watch`: many open pages on loopback, as browsers ask for them, while a run is under way.

    python -m benchmarks.load.readers FOLDER [--readers 200] [--seconds 120] [--close] [--pause 2]

Every reader opens the page and asks for its data every two seconds, as the page's own script does. With `--close`,
each request makes a connection of its own. The folder gets `runs`, `samples.csv` and `readers.json`.
"""

import argparse
import asyncio
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fairlag
from benchmarks.load.sampled import grown, read, sampled, spread
from fairlag.errors import UnreadableError
from fairlag.lab.run import Run

EVERY = 2.0
"""Seconds between two samples, and between two looks at the run."""
PATIENCE = 60.0
"""Seconds that a reader waits for an answer."""
ATTEMPTS = 3
"""How often a browser sends a request whose connection was closed before it was answered."""
EXPERIMENT = """\
name = "watched"
aggregations = {aggregations}

[data]
use = "digits"
holdout = 0.2

[model]
use = "mlp"

[local]
steps = 20
batch = 32
lr = 0.01

[evaluate]
every = 50

[[clients]]
group = "fast"
count = 10
delay = "uniform(1, 2)"
labels = [4, 5, 6, 7, 8, 9]

[[clients]]
group = "slow"
count = 5
delay = "uniform(8, 12)"
labels = [0, 1, 2, 3]

[[strategies]]
use = "fedstaleweight"
buffer = 5
"""


class Reader:
    """A browser with the page open: one connection, which it keeps unless told otherwise."""

    def __init__(self, address: str, *, close: bool) -> None:
        where = urlsplit(address)
        self._host, self._port = str(where.hostname), int(where.port or 80)
        self._close = close
        self._line: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._tag = ""
        self.asked: list[tuple[str, str, float, int]] = []
        """Per request: its path, its status or error, the seconds that it took, and the bytes of the answer."""

    async def read(self, until: float, pause: float) -> None:
        """Opens the page, then asks for its data until a time of the monotonic clock."""
        await asyncio.sleep(random.uniform(0, pause))
        for path in ("/", "/plotly.js", "/page.json"):
            await self._ask(path)
        while time.monotonic() + pause < until:
            await asyncio.sleep(pause)
            await self._ask("/page.json")
        self._drop()

    async def _ask(self, path: str) -> None:
        began, status, size = time.perf_counter(), "closed", 0
        for _ in range(ATTEMPTS):
            try:
                status, size = await asyncio.wait_for(self._answer(path), PATIENCE)
                break
            except (OSError, EOFError, ValueError) as error:
                status = type(error).__name__
                self._drop()
        self.asked.append((path, status, time.perf_counter() - began, size))

    async def _answer(self, path: str) -> tuple[str, int]:
        if self._line is None:
            self._line = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._line
        lines = [f"GET {path} HTTP/1.1", f"Host: {self._host}:{self._port}"]
        lines += [f"If-None-Match: {self._tag}"] if self._tag and path == "/page.json" else []
        lines += ["Connection: close"] if self._close else []
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        named = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
        status, size = head[0].split()[1], int(named["content-length"])
        await reader.readexactly(size)
        if path == "/page.json" and status == "200":
            self._tag = named["etag"]
        if self._close or named.get("connection") == "close":
            self._drop()
        return status, size

    def _drop(self) -> None:
        if self._line is not None:
            self._line[1].close()
            self._line = None


async def reading(address: str, readers: int, seconds: float, pause: float, *, close: bool) -> list[Reader]:
    """That many readers for so long."""
    made = [Reader(address, close=close) for _ in range(readers)]
    await asyncio.gather(*(each.read(time.monotonic() + seconds, pause) for each in made))
    return made


def answers(readers: list[Reader], seconds: float) -> dict[str, Any]:
    """What was asked and answered; durations are in milliseconds."""
    asked = [each for reader in readers for each in reader.asked]
    found: dict[str, Any] = {"requests/s": len(asked) / seconds, "MB/s": sum(each[3] for each in asked) / seconds / 1e6}
    for path in ("/", "/plotly.js", "/page.json"):
        own = [each for each in asked if each[0] == path]
        found[path] = {"statuses": Counter(each[1] for each in own), **spread([1000 * each[2] for each in own])}
    return found


@contextmanager
def process(*words: str) -> Iterator["subprocess.Popen[str]"]:
    """A command in a session of its own, as in a terminal of its own; Ctrl-C ends it."""
    command = [sys.executable, "-m", "fairlag", *words]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield started
    finally:
        started.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            started.wait(60)
        started.kill()


def pace(folder: Path, seconds: float) -> float:
    """Versions per second of a run under way, between the first and the last commit in this time, or a longer one."""
    seen: list[tuple[float, int]] = []
    began = time.monotonic()
    while time.monotonic() < began + seconds or (len(seen) < 3 and time.monotonic() < began + 5 * seconds):
        with suppress(UnreadableError, OSError):
            version = Run(folder).version
            if not seen or version != seen[-1][1]:
                seen.append((time.monotonic(), version))
        time.sleep(EVERY / 4)
    first, last = seen[1], seen[-1]  # the first look was not at a commit
    return (last[1] - first[1]) / max(last[0] - first[0], 1e-9)


async def both(address: str, run: Path, options: argparse.Namespace) -> tuple[list[Reader], float]:
    """The readers, and the pace of the run meanwhile."""
    loop = asyncio.get_running_loop()
    paced = loop.run_in_executor(None, pace, run, options.seconds)
    readers = await reading(address, options.readers, options.seconds, options.pause, close=options.close)
    return readers, await paced


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A finished run and one under way, watched by nobody, then by the readers, then by nobody."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "runs").mkdir(parents=True)
    for name, aggregations in (("short", 200), ("long", 10_000_000)):
        (folder / f"{name}.toml").write_text(EXPERIMENT.format(aggregations=aggregations))
    fairlag.simulate(folder / "short.toml", out=folder / "runs" / "short", workers=1)
    out = str(folder / "runs" / "long")
    with process("run", str(folder / "long.toml"), "--workers", "1", "--out", out):
        pace_of = [0.0, 0.0, 0.0]
        run = _begun(folder / "runs" / "long")
        print("a run is under way", flush=True)
        pace_of[0] = pace(run, options.seconds)
        with process("watch", str(folder / "runs")) as watch:
            assert watch.stdout is not None
            address = watch.stdout.readline().split()[-1]
            print("the readers come", flush=True)
            with sampled(folder / "samples.csv", EVERY, watch.pid):
                readers, pace_of[1] = asyncio.run(both(address, run, options))
        print("the readers are gone", flush=True)
        pace_of[2] = pace(run, options.seconds)
    pages = {"readers": options.readers, "close": options.close, **answers(readers, options.seconds)}
    return {**pages, "versions/s before, during, after": pace_of, **grown(read(folder / "samples.csv")["tool"])}


def _begun(folder: Path) -> Path:
    """The run of a plan, as soon as it has a version."""
    while True:
        for each in folder.glob("*/"):
            with suppress(UnreadableError, OSError):
                if Run(each).version:
                    return each
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description="`fairlag watch` with many readers, measured.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--readers", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--pause", type=float, default=2.0, help="seconds between two requests of a reader")
    parser.add_argument("--close", action="store_true", help="one connection per request")
    options = parser.parse_args()
    summary = measure(options.folder, options)
    (options.folder / "readers.json").write_text(json.dumps(summary, indent=1))
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
