"""Memory does not grow with the length of a run: neither versions, nor tasks, nor rows pile up."""

import gc
import resource
from pathlib import Path

import pytest

from fairlag.lab import loop
from fairlag.lab.events import Event, Progress
from fairlag.lab.simulate import simulate


def resident() -> float:
    """Megabytes that this process has in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc to see the memory in use")
def test_twenty_thousand_aggregations_take_no_more_memory_than_two_thousand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rows are kept until the next checkpoint, many megabytes of them where it is late.
    monkeypatch.setattr(loop, "CHECKPOINT", 0.2)
    monkeypatch.setattr(loop, "_COSTLY", 0)
    seen: dict[int, float] = {}

    def watch(event: Event) -> None:
        mark = event.version // 1000 if isinstance(event, Progress) else None
        if mark is not None and mark not in seen:
            gc.collect()
            seen[mark] = resident()

    simulate(
        {
            "name": "long",
            "aggregations": 20_000,
            "clients": [
                {"group": "fast", "count": 10, "delay": "uniform(1, 2)", "vanish": 0.01},
                {"group": "slow", "count": 5, "delay": "uniform(8, 12)"},
            ],
            "strategies": [{"use": "fedstaleweight", "buffer": 2}],
            "data": {"use": "digits"},
            "model": {"use": "logistic"},
            "evaluate": {"every": 500, "sample": 50},
        },
        out=tmp_path / "run",
        workers=1,
        watch=watch,
    )
    early = max(megabytes for mark, megabytes in seen.items() if 2 <= mark <= 5)
    late = max(megabytes for mark, megabytes in seen.items() if mark >= 16)
    assert len(seen) >= 15
    # A version of this model is 2.6 kB and a task 100 bytes: kept for ever, they would be 50 MB and more.
    assert late - early < 8, f"{early:.1f} MB in memory early in the run, {late:.1f} MB late in it"
