"""Runs a real federation on loopback under random faults, and checks its record: `make soak-deployment MINUTES=120`.

Six SuperNodes with TLS, keys and an allow-list train with FairShare's accounts. One seed draws when nodes are killed,
ended or frozen, when one is put into quarantine, and when the ServerApp or the SuperLink is killed. For a third of the
time in the middle, only nodes are disturbed, to see whether memory grows. The folder gets `faults.txt`, `memory.csv`,
`sizes.csv` and `result.json`. Exit code 1 means that a check failed.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairlag.errors import InputError
from fairlag.lab.quarantine import request
from fairlag.lab.run import Run
from fairlag.lab.verify import verified
from tests.support import processes
from tests.support.books import Books
from tests.support.deployed import Record, read
from tests.support.faults import SERVER, Fault, drawn
from tests.support.growth import Growth, slopes
from tests.support.soaked import SoakedFederation

DISTURBED = 3
"""The most nodes that are disturbed at the same time."""
LOOK, SUPERVISE, SAMPLE, SAY = 10.0, 15.0, 30.0, 60.0
"""Seconds between two checks, restarts of ended nodes, measurements of memory, and lines of progress."""
WAIT = 0.8
"""The part of the server's kills that wait until it has made a version since the last one."""
START = 900.0
"""The most seconds until each node has sent an update."""
STALLED = 900.0
"""Seconds without a new version that count as a failure."""
MOST = 200
"""The most failures that are told."""


class Soak:
    """A federation under faults, with its books."""

    def __init__(self, folder: Path, seconds: float, seed: int, port: int) -> None:
        self.federation = SoakedFederation(folder, port)
        self.folder, self.out = folder.resolve(), self.federation.out
        self.seconds, self.seed, self.faults = seconds, seed, drawn(seed, seconds)
        self.books, self.growth = Books(self.federation.held()), Growth(self.folder)
        self.pending: list[tuple[float, Callable[[], None]]] = []
        self.disturbed: set[int] = set()
        self.counts = Counter[str]()
        self.killed_at: list[int] = []
        self.wrong: list[str] = []
        self.verified, self.newest, self.progressed = 0, 0, 0.0
        self.began = time.monotonic()

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began

    def say(self, text: str) -> None:
        """Prints a line with the time, and keeps it."""
        line = f"{self.now / 60:6.1f} min  {text}"
        print(line, flush=True)
        with (self.folder / "faults.txt").open("a") as file:
            file.write(f"{line}\n")

    def fail(self, text: str) -> None:
        """Something is not as it must be."""
        if text not in self.wrong and len(self.wrong) < MOST:
            self.wrong.append(text)
            self.say(f"WRONG: {text}")

    def run(self) -> None:
        """Starts everything, lets faults happen, and looks, until the time is over."""
        self.say("starts")
        self.federation.start()
        self.federation.run_app()
        self._wait(lambda: self._heard() == len(self.books.nodes), "an update of each node", START)
        self.progressed = self.now
        self.say(f"{len(self.books.nodes)} nodes run; {len(self.faults)} faults are drawn from seed {self.seed}")
        acts = {LOOK: self.look, SUPERVISE: self.supervise, SAMPLE: self.sample, SAY: self.say_where}
        due = dict.fromkeys(acts, 0.0)
        while self.now < self.seconds:
            for every, act in acts.items():
                if self.now >= due[every]:
                    due[every] = self.now + every
                    self._guarded(act)
            self._guarded(self._happen)
            time.sleep(0.5)

    def _guarded(self, act: Callable[[], None]) -> None:
        """A failure is told, and the soak continues."""
        try:
            act()
        except (Exception, SystemExit):
            self.fail(traceback.format_exc())

    def _heard(self) -> int:
        """How many nodes a version was made from."""
        self.look()
        return len({task.client for task in self.books.tasks.values() if task.aggregation is not None})

    # Faults

    def _happen(self) -> None:
        """What is due: first the ends of earlier faults, then one fault."""
        for due in sorted(self.pending, key=lambda each: each[0]):
            if due[0] <= self.now:
                self.pending.remove(due)
                due[1]()
        if self.faults and self.faults[0].at <= self.now:
            fault = self.faults.pop(0)
            if fault.kind in SERVER:
                self._kill_server(fault)
            elif len(self.disturbed) < DISTURBED:
                well = sorted(self.books.nodes.keys() - self.disturbed)
                self._disturb(fault, well[int(fault.pick * len(well))])
            else:
                self._postpone(fault, 20)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self.pending.append((self.now + seconds, act))

    def _postpone(self, fault: Fault, seconds: float) -> None:
        self.faults = sorted([*self.faults, fault._replace(at=self.now + seconds)])

    def _disturb(self, fault: Fault, number: int) -> None:
        federation, name, lasts = self.federation, f"node-{number}", fault.lasts
        self.counts[fault.kind] += 1
        self.disturbed.add(number)
        self.say(f"{fault.kind}: {federation.nodes[number]}, for {lasts:.0f} s")
        if fault.kind == "quarantine":
            self.books.quarantined.add(number)
            request(Run(self.out), str(number), "soak", release=False)
            self._later(lasts, lambda: _release(self.out, number))
        elif fault.kind == "node frozen":
            frozen = federation.tree(name)
            processes.send(signal.SIGSTOP, frozen)
            self._later(lasts, lambda: processes.send(signal.SIGCONT, frozen))
        else:
            federation.stop(name, kill=fault.kind == "node killed")
            self._later(lasts, lambda: federation.start_node(number))
        self._later(lasts + 30, lambda: self.disturbed.discard(number))

    def _kill_server(self, fault: Fault) -> None:
        apps, link = self.federation.apps(), fault.kind == "SuperLink killed"
        idle = bool(self.killed_at) and self.newest <= self.killed_at[-1]
        if not apps or (idle and fault.pick < WAIT):  # it is being started
            self._postpone(fault, 5)
            return
        self.look()
        self.counts[fault.kind] += 1
        if link:
            self.federation.stop("superlink", kill=True)
        else:
            processes.send(signal.SIGKILL, apps)
        self.say(f"{fault.kind} at version {self.newest}; restart in {fault.lasts:.0f} s")
        self._later(fault.lasts, lambda: self._restart(link=link))
        self._wait(lambda: Run(self.out).status == "interrupted", "the end of the ServerApp", 60)
        self.look()
        self.killed_at.append(self.newest)
        self.verify("after the kill")

    def _restart(self, *, link: bool) -> None:
        if link:
            self.federation.start_superlink()
        try:
            self.federation.run_app()
        except SystemExit as error:  # on a busy machine, the command may give up
            self.counts["app not started at once"] += 1
            self.say(f"the app was not started, again in 20 s: {error}")
            self._later(20, lambda: self._restart(link=False))
            return
        self.say(f"{'the SuperLink and the app run' if link else 'the app runs'} again")
        self.progressed = self.now
        self._later(90, lambda: self.verify("after the restart"))

    def supervise(self) -> None:
        """Restarts nodes that have ended, as a service manager does."""
        link = self.federation.processes.get("superlink")
        if link is None:  # it was killed, and its restart is due
            return
        if link.poll() is None:
            self.federation.supervise()
            return
        self.fail("the SuperLink ended by itself")
        self.federation.stop("superlink", kill=True)
        self._restart(link=True)

    def _wait(self, done: Callable[[], bool], what: str, most: float) -> None:
        until = time.monotonic() + most
        while not done():
            if time.monotonic() > until:
                self.fail(f"{what} did not come within {most:.0f} s")
                return
            time.sleep(1.0)

    # Checks and measurements

    def look(self) -> None:
        """Reads the record and compares it with the books."""
        try:
            record = self._record()
        except Exception as error:  # whatever it is, the soak continues
            if self.newest:  # before its first commit, a run has no checkpoint
                self.fail(f"the record cannot be read: {error!r}")
            return
        if record.version > self.newest:
            self.newest, self.progressed = record.version, self.now
        elif self.now - self.progressed > STALLED:
            self.fail(f"no new version after {self.newest} in {STALLED:.0f} s, at {self.now / 60:.0f} min")
            self.progressed = self.now
        for sentence in self.books.look(record):
            self.fail(sentence)

    def _record(self) -> Record:
        """The record; read again if its checkpoint was replaced by two later ones before it could be read."""
        for _ in range(5):
            with suppress(OSError, InputError):
                return read(self.out)
        return read(self.out)

    def verify(self, when: str) -> None:
        """Checks all digests, as `fairlag runs --verify` does; on a busy machine, that takes a minute to start."""
        intact, said = verified(self.out)
        self.verified += 1
        if not intact:
            self.fail(f"{when}, the run is not intact: {said}")

    def sample(self) -> None:
        """Measures memory, and what is on disk."""
        names = {process.pid: name for name, process in self.federation.processes.items()}
        self.growth.sample(self.now, self.federation.living(), names)
        self.growth.weigh(self.now, self.newest, self.out, self.federation.folder)

    def say_where(self) -> None:
        """A line of progress."""
        counts = f"{self.counts.total()} faults, {self.books.looks} looks, {len(self.wrong)} wrong"
        away = ", ".join(self.federation.nodes[each] for each in sorted(self.disturbed)) or "none"
        self.say(f"version {self.newest}, {counts}, {self.growth.busy / self.now:.2f} cores, disturbed: {away}")

    def finish(self) -> None:
        """Ends all processes, and looks for the last time."""
        self.federation.close()
        self.look()
        self.verify("at the end")
        command = [sys.executable, "-m", "fairlag", "runs", str(self.out.parent), "--verify"]
        if subprocess.run(command, check=False).returncode:
            self.fail("fairlag runs --verify found damage at the end")

    def result(self) -> dict[str, Any]:
        """What was done, and what was seen."""
        tasks = self.books.tasks.values()
        return {
            "seed": self.seed,
            "minutes": round(self.now / 60, 1),
            "versions": self.newest,
            "tasks": Counter(task.outcome for task in tasks),
            "lost": Counter(task.reason for task in tasks if task.outcome == "lost"),
            "faults": self.counts,
            "versions at which the server was killed": self.killed_at,
            "looks": self.books.looks,
            "verified": self.verified,
            "cores": round(self.growth.busy / self.now, 3),
            "wrong": self.wrong,
            "memory": slopes(self.folder / "memory.csv"),
        }


def _release(out: Path, number: int) -> None:
    request(Run(out), str(number), "soak", release=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak_deployment", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=120.0, help="how long it takes (120)")
    parser.add_argument("--seed", type=int, default=0, help="draws the faults (0)")
    parser.add_argument("--port", type=int, default=9800, help="port of the SuperLink; nodes use the next ports")
    parser.add_argument("--folder", type=Path, default=Path("soak-deployment"), help="a new folder for everything")
    chosen = parser.parse_args()
    if chosen.folder.exists():
        parser.error(f"{str(chosen.folder)!r} exists: give a new --folder")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends everything, as Ctrl-C does
    soak = Soak(chosen.folder, 60 * chosen.minutes, chosen.seed, chosen.port)
    try:
        soak.run()
        soak.say("the time is over")
    except KeyboardInterrupt:
        soak.say("interrupted")
    except (Exception, SystemExit):
        soak.fail(traceback.format_exc())
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # a second one must not prevent the report
        soak.finish()
    result = json.dumps(soak.result(), indent=2)
    (soak.folder / "result.json").write_text(f"{result}\n")
    print(result)
    return 1 if soak.wrong or not soak.newest else 0


if __name__ == "__main__":
    sys.exit(main())
