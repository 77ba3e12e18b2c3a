"""A table of deployments in memory: one row per folder of benchmarks.load.memory.

python -m benchmarks.load.table FOLDER...
"""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.load.memory import FAST, SLOW

COLUMNS = (
    "nodes | parameters | updates/s if nothing cost time | updates/s | versions/s | late, s: median, 95 %, max "
    "| commit, ms: median, 95 %, max | unpack, ms: median | server thread at work | of it: commits | cores | MB"
)
SERVER = ("pack", "unpack", "handle", "commit")
"""The parts that the server's own thread does, one after the other."""


def row(found: dict[str, Any]) -> str:
    """The cells of one deployment."""
    slow = found["nodes"] // 4
    offered = ((found["nodes"] - slow) / (sum(FAST) / 2) + slow / (sum(SLOW) / 2)) / found["unit"]
    parts, names = found["parts"], ("median", "95 %", "max")
    busy = sum(parts[name]["share of the time"] for name in SERVER)
    cells = [
        f"{found['nodes']:,}",
        f"{found['parameters']:,}",
        f"{offered:.2f}",
        f"{found['updates/s']:.2f}",
        f"{found['versions/s']:.2f}",
        ", ".join(f"{found['late'][name] / 1000:.2f}" for name in names),
        ", ".join(f"{parts['commit'][name]:.0f}" for name in names),
        f"{parts['unpack']['median']:.1f}",
        f"{busy:.0%}".replace("%", " %"),
        f"{parts['commit']['share of the time']:.0%}".replace("%", " %"),
        f"{found['cores']:.2f}",
        f"{found['MB']:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    folders = parser.parse_args().folders
    for folder in folders:
        if not (folder / "summary.json").exists():
            parser.error(f"{str(folder)!r} has no summary.json: give folders that benchmarks.load.memory has finished")
    print(f"| {COLUMNS} |\n|{'--:|' * (COLUMNS.count('|') + 1)}")
    for folder in folders:
        print(row(json.loads((folder / "summary.json").read_text())))


if __name__ == "__main__":
    main()
