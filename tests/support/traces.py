"""Small files of recorded fleets, in each format that is read, and an experiment that uses them."""

import json
import pickle
from pathlib import Path
from typing import Any

AVAILABILITY = """client,start,end
a,0,20
a,80,100
b,30,70
c,0,100
d,10,20
d,20,50
"""
"""With a period of 100 s: a wraps around, c is always there, and the two rows of d touch."""

CAPACITY = """client,seconds_per_step,up_mbps,down_mbps,group
a,0.5,4,16,phone
c,0.05,80,80,desk
b,0.25,8,16,phone
d,2,1,2,watch
"""

BEHAVIOUR = {
    1: {"duration": 40, "active": [0, 80], "inactive": [20, 100], "finish_time": 100, "model": "X1"},
    2: {"duration": 60, "active": [30, 60, 75], "inactive": [70, 75, 75], "finish_time": 90, "model": "X2"},
    3: {"duration": 0, "active": [], "inactive": [], "finish_time": 100, "model": "X3"},
}
DEVICES = {1: {"computation": 10.0, "communication": 2000.0}, 2: {"computation": 40, "communication": 500.0}}
PROFILES = {"Client1": {"compute_factor": 1.5, "bandwidth": 8.0}, "Client2": {"delay": 4, "bandwidth": 0}}


def put(folder: Path) -> Path:
    """Writes all of them."""
    (folder / "presence.csv").write_text(AVAILABILITY)
    (folder / "capacity.csv").write_text(CAPACITY)
    (folder / "client_behave_trace").write_bytes(pickle.dumps(BEHAVIOUR))
    (folder / "client_device_capacity").write_bytes(pickle.dumps(DEVICES))
    (folder / "profiles.json").write_text(json.dumps(PROFILES))
    return folder


def tables(*clients: dict[str, Any], **others: Any) -> dict[str, Any]:
    """An experiment without data; by default with the four clients of the two CSV files."""
    four = {"capacity": 'file("capacity.csv")', "availability": 'file("presence.csv", period=100)'}
    return {
        "name": "recorded",
        "aggregations": 60,
        "model_bytes": 1_000_000,
        "clients": list(clients) or [four],
        "strategies": [{"use": "fedbuff", "buffer": 2, "concurrency": 3}],
        "local": {"steps": 4},
        **others,
    }
