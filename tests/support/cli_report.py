"""What other tests share with test_cli_report.py."""

from pathlib import Path

SMALL = {
    "name": "small",
    "aggregations": 20,
    "clients": [
        {"group": "fast", "count": 3, "delay": "uniform(1, 2)"},
        {"group": "slow", "count": 2, "delay": "uniform(8, 12)"},
    ],
    "strategies": [{"use": "fairshare", "buffer": 2}],
}


def spoilt(folder: Path, how: str) -> None:
    """Spoils a run."""
    database, experiment = folder / "run.sqlite", folder / "experiment.json"
    if how == "no database":
        database.write_bytes(b"x" * 5000)
    elif how == "pages":
        content = bytearray(database.read_bytes())
        content[4096 * 2 :] = b"\xaa" * (len(content) - 4096 * 2)
        database.write_bytes(content)
    elif how == "no file":
        experiment.unlink()
    else:
        experiment.write_text(how)
