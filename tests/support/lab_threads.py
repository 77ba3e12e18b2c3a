"""What other tests share with test_lab_threads.py."""

from typing import Any

TABLES: dict[str, Any] = {
    "name": "threads",
    "aggregations": 12,
    "data": {"use": "digits"},
    "model": {"use": "tests.support.learning:dropping"},
    "local": {"steps": 2, "batch": 16, "lr": 0.1},
    "evaluate": {"every": 4, "sample": 100},
    "clients": [
        {"group": "fast", "count": 4, "delay": "uniform(1, 2)"},
        {"group": "slow", "count": 2, "delay": "uniform(8, 12)"},
    ],
    "strategies": [{"use": "fedstaleweight", "buffer": 3}],
}
