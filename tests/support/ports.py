"""Ports of this machine for servers that tests start."""

import os
import socket


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody uses.

    Processes of a test run have neighbouring numbers. Each begins 64 ports further, because another one may not have
    opened yet what it was given.
    """
    for first in range(20_000 + os.getpid() * 64 % 12_000, 60_000, count):
        held = []
        try:
            for port in range(first, first + count):
                held.append(socket.create_server(("127.0.0.1", port)))
        except OSError:
            continue
        finally:
            for each in held:
                each.close()
        return first
    raise AssertionError("no port is free")
