"""Virtual time at compiled speed, without learning, for strategies whose rules are known; virtual.py is the definition.

Only jit.py and what is imported with it (kernel.py, weights.py, timeline.py) need numba, the extra `fast`.
"""

from importlib.util import find_spec


def available() -> bool:
    """Is numba there?"""
    return find_spec("numba") is not None
