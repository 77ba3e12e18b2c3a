"""Ray clusters on loopback, each in its own folder and removed afterwards, and the actors of an executor."""

import gc
import os
import subprocess
import sysconfig
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlag.execute import cluster
from fairlag.execute.ray import Actors
from tests.support.patience import wait_until

LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Without it, Ray listens on all addresses of the machine. Ray reads it on import, so conftest.py sets it before."""
_SETTINGS = {**LOOPBACK, "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
"""Workers of low priority would hardly start on a busy machine."""

CPUS = 6
"""Of the cluster that tests share: more than any of them has actors at once."""

_GUARD = '"$@" || kill -KILL 0 & read _; kill -KILL 0'
"""Ends a group of processes if the command fails, or once its standard input is closed, even if pytest is killed.

`ray stop` is no help: it ends every cluster of the machine.
"""


@contextmanager
def started(cpus: int) -> Iterator[str]:
    """The address of a new cluster with this number of CPUs, made by `ray start`."""
    # Ray's sockets need short paths.
    with tempfile.TemporaryDirectory(prefix="flr-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        log, address = Path(folder, "log"), Path(folder, "ray", "ray_current_cluster")
        command = [str(Path(sysconfig.get_path("scripts"), "ray")), "start", "--head", "--block", "--port=0"]
        command += [f"--num-cpus={cpus}", "--include-dashboard=false", f"--temp-dir={address.parent}"]
        with (
            log.open("w") as output,
            subprocess.Popen(
                ["sh", "-c", _GUARD, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**os.environ, **_SETTINGS},
                start_new_session=True,
            ) as group,
        ):
            wait_until(lambda: address.exists() or group.poll() is not None, "the start of Ray", log.read_text)
            assert group.poll() is None, log.read_text()
            yield address.read_text()
        wait_until(lambda: not is_there(group.pid), "the end of Ray")


def is_there(group: int) -> bool:
    """Does the group have any process?"""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def several(nodes: int) -> Iterator[Any]:
    """A cluster with this number of nodes, each with one CPU; the head, on which the test runs, has none."""
    cluster.library()
    from ray.cluster_utils import Cluster  # not before the settings of cluster.library()

    here: dict[str, Any] = {"node_ip_address": "127.0.0.1"}
    with (
        tempfile.TemporaryDirectory(prefix="flr-", dir="/tmp", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
    ):
        # Ray leaves it to the garbage collector to close the files of its processes, and to reap them.
        warnings.filterwarnings("ignore", "unclosed file .*/dev/null", ResourceWarning)
        warnings.filterwarnings("ignore", "subprocess .* is still running", ResourceWarning)
        for name, value in {**_SETTINGS, "RAY_TMPDIR": folder}.items():
            patch.setenv(name, value)
        Path(folder, "ray").mkdir()  # Ray writes the address of its last cluster here
        head = {**here, "include_dashboard": False, "num_cpus": 0, "temp_dir": str(Path(folder, "t"))}
        made: Any = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(nodes):
                made.add_node(num_cpus=1, **here)
            yield made
        finally:
            made.shutdown()
            gc.collect()


def pids(pool: Actors) -> list[int]:
    """The processes of the actors, once these have finished their tasks."""
    asked = [worker.actor.__ray_call__.remote(lambda actor: os.getpid()) for worker in pool._workers]
    found: list[int] = pool._ray.get(asked)
    return found
