"""fairlag, four peers and a bare PyTorch loop with the same work, in turns: writes the tables of docs/benchmarks.md.

Every peer has its own virtual environment in `.peers/`, made at the first run with the versions in `<peer>.txt` and
kept until these change. Each measurement is a separate process, `python -m benchmarks.peers.<peer>`, which answers with
a line of JSON. The bare loop is always measured, and every speed is divided by its speed in the same round. The table
has the medians over the rounds. A peer that cannot be installed, fails or takes too long has a row that says so.

    python benchmarks/peers/run.py [--peers fairlag flgo …] [--model fashion_cnn | logistic] [--updates N] [--rounds 2]
"""

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ENVIRONMENTS = ROOT / ".peers"
PAGE = ROOT / "docs" / "benchmarks.md"
UPDATES = {"fashion_cnn": 200, "logistic": 2000}
OURS = ("bare", "fairlag")
"""Measured with the interpreter that runs this script; peers have their own."""
LEAST = {"fashion_cnn": 0, "logistic": 14_000}
"""The minimum of updates for these: with fewer, they would be measured for less than a second."""
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "WANDB_MODE": "disabled",
    "MPLBACKEND": "agg",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""No telemetry, no plots, one thread per process."""


class Entry(NamedTuple):
    """One row of a table."""

    peer: str
    variant: str
    name: str
    processes: str
    model: str = ""
    """The only model that has this row; empty: all."""


ENTRIES = (
    Entry("bare", "", "bare loop", "1"),
    Entry("bare", "kept", "bare loop, memory kept", "1"),
    Entry("bare", "2", "two bare loops at once", "2"),
    Entry("fairlag", "", "fairlag, serial", "1"),
    Entry("fairlag", "long", "fairlag, compiled loops (100,000 updates)", "1", "logistic"),
    Entry("fairlag", "2", "fairlag, 2 workers", "1 + 2"),
    Entry("pfl", "", "pfl (synchronous)", "1"),
    Entry("pfl", "2", "pfl (synchronous), torchrun", "2"),
    Entry("appfl", "", "APPFL, vsim", "1"),
    Entry("appfl", "memory", "APPFL, vsim, optimize_memory off", "1"),
    Entry("flgo", "", "FLGo, FedBuff", "1"),
    Entry("flwr", "", "Flower, asynchronous loop", "1 + 1 actor"),
    Entry("flwr", "2", "Flower, asynchronous loop", "1 + 2 actors"),
)
PEERS = tuple(dict.fromkeys(entry.peer for entry in ENTRIES))


class Failure(Exception):
    """Says why a peer has no numbers."""


def python_of(peer: str) -> Path:
    """The interpreter for a peer. Its environment is made if it is missing or its versions have changed."""
    if peer in OURS:
        return Path(sys.executable)
    home, pins = ENVIRONMENTS / peer, HERE / f"{peer}.txt"
    python, stamp = home / "bin" / "python", home / "installed"
    wanted = sha256(pins.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    print(f"installing {peer} into {home.relative_to(ROOT)}", flush=True)
    venv.create(home, clear=True, with_pip=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--no-compile", "--quiet"]
    done = subprocess.run([*pip, "-r", str(pins)], capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise Failure(f"cannot install it: {errors[-1] if errors else last_line(done.stderr)}")
    stamp.write_text(wanted)
    return python


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")


def environment(entry: Entry, folder: str) -> dict[str, str]:
    """The environment of a process. Python may store compiled modules: compiling all of a peer again takes a minute."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    paths = [str(ROOT), *([kept["PYTHONPATH"]] if entry.peer in OURS and "PYTHONPATH" in kept else [])]
    return {**kept, **QUIET, "PYTHONPATH": os.pathsep.join(paths), "RAY_TMPDIR": folder, "FLWR_HOME": folder}


def measured(entry: Entry, model: str, updates: int, patience: float) -> dict[str, Any]:
    """The answer of one process, which runs in a temporary folder."""
    command = [str(python_of(entry.peer)), "-m", f"benchmarks.peers.{entry.peer}"]
    wanted = max(updates, LEAST[model] if entry.peer in OURS else 0)
    command += ["--model", model, "--updates", str(wanted), "--variant", entry.variant]
    with tempfile.TemporaryDirectory(prefix="peer-", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(entry, folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise Failure(f"took longer than {patience:.0f} s") from None
    if process.returncode:
        raise Failure(f"failed: {last_line(errors)}")
    for line in reversed(output.splitlines()):
        if line.startswith('{"updates"'):
            answer: dict[str, Any] = json.loads(line)
            return answer
    raise Failure("ended without an answer")


class Results:
    """The answers of every round, and why others are missing."""

    def __init__(self) -> None:
        self.answers: dict[Entry, list[dict[str, Any] | None]] = {}
        self.reasons: dict[Entry, str] = {}

    def take(self, entry: Entry, model: str, updates: int, patience: float) -> None:
        """Measures once; an entry that failed is not tried again."""
        answer = None
        if entry not in self.reasons:
            try:
                answer = measured(entry, model, updates, patience)
            except Failure as failure:
                self.reasons[entry] = str(failure)
        self.answers.setdefault(entry, []).append(answer)
        said = f"{answer['updates'] / answer['seconds']:.1f} updates/s" if answer else self.reasons[entry]
        print(f"{model}: {entry.name} ({entry.processes}): {said}", flush=True)

    def median(self, entry: Entry, above: str, below: str, *, to_bare: bool = False) -> float | None:
        """The median of a ratio over the rounds, either plain or divided by the bare loop's in the same round."""
        values = []
        for answer, bare in zip(self.answers[entry], self.answers[ENTRIES[0]], strict=True):
            if answer and bare and answer[above] and answer[below]:
                scale = bare[above] / bare[below] if to_bare else 1.0
                values.append(answer[above] / answer[below] / scale)
        return statistics.median(values) if values else None

    def row(self, entry: Entry) -> str:
        if entry in self.reasons:
            return f"| {entry.name} | {entry.processes} | {self.reasons[entry]} | | | | |"
        cells = [
            _number(self.median(entry, "updates", "seconds")),
            _number(self.median(entry, "updates", "seconds", to_bare=True), 3),
            _number(self.median(entry, "processor_seconds", "updates"), scale=1000),
            _number(self.median(entry, "evaluation_examples", "evaluation_seconds")),
            _number(self.median(entry, "evaluation_examples", "evaluation_seconds", to_bare=True), 3),
        ]
        return f"| {entry.name} | {entry.processes} | {' | '.join(cells)} |"

    def versions(self) -> str:
        found: dict[str, str] = {}
        for answers in self.answers.values():
            for answer in answers:
                found |= answer["versions"] if answer else {}
        return ", ".join(f"{name} {version}" for name, version in sorted(found.items()))


def _number(value: float | None, digits: int = 1, scale: float = 1.0) -> str:
    """With this many decimals, or none from 100 on, or three below 1."""
    if value is None:
        return "–"
    shown = value * scale
    return f"{shown:,.{0 if shown >= 100 else digits if shown >= 1 else 3}f}"


def table(results: Results, model: str, updates: int, rounds: int, load: float) -> str:
    cores = os.cpu_count() or 1
    machine = f"{cores} cores, Python {platform.python_version()}; {results.versions()}"
    more = f" ({LEAST[model]} for bare loops and fairlag)" if LEAST[model] > updates else ""
    lines = [
        f"`{model}`, {updates} updates each{more}, medians of {rounds} rounds. {machine}.",
        *([f"**Other programs used {load:.1f} cores at the start: these ratios are rough.**"] if load > 0.5 else []),
        "",
        "| who | processes | client updates/s | ÷ bare | processor ms/update | evaluation, examples/s | ÷ bare |",
        "|---|---|--:|--:|--:|--:|--:|",
        *map(results.row, results.answers),
    ]
    return "\n".join(lines)


def write(page: Path, model: str, text: str) -> None:
    """Writes the text between the markers of that model."""
    begin, end = f"<!-- {model}: begin -->", f"<!-- {model}: end -->"
    before, found, rest = page.read_text("utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{page} has no place for {model}: it needs a line {begin!r} and, below it, a line {end!r}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", "utf-8")


def compare(peers: Iterable[str], model: str, updates: int, rounds: int, patience: float) -> str:
    load, results = os.getloadavg()[0], Results()
    chosen = [entry for entry in ENTRIES if entry.peer in {"bare", *peers} and entry.model in ("", model)]
    for _ in range(rounds):
        for entry in chosen:
            results.take(entry, model, updates, patience)
    return table(results, model, updates, rounds, load)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peers", nargs="+", default=PEERS, choices=PEERS)
    parser.add_argument("--model", nargs="+", default=list(UPDATES), choices=list(UPDATES))
    parser.add_argument("--updates", type=int, help="updates per entry after 15 uncounted ones (default: 200 and 2000)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--patience", type=float, default=600.0, help="seconds that one measurement may take")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write the tables into")
    options = parser.parse_args()
    for model in options.model:
        updates = options.updates or UPDATES[model]
        text = compare(options.peers, model, updates, options.rounds, options.patience)
        print(text, flush=True)
        write(options.page, model, text)


if __name__ == "__main__":
    main()
