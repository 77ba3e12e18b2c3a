"""How long tests wait for what must happen: far longer than it takes, so that a busy machine is no failure."""

import time
from collections.abc import Callable

PATIENCE = 600.0


def wait_until(
    met: Callable[[], object],
    what: str = "what was waited for",
    details: Callable[[], object] = str,
    meanwhile: Callable[[], object] = lambda: time.sleep(0.05),
) -> None:
    """Checks again and again, and fails with a message that says what did not happen."""
    until = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < until, f"{what} did not happen {details()}"
        meanwhile()
