"""Virtual time at compiled speed, without learning, for strategies whose rules are known; virtual.py is the definition.

Only jit.py and what is imported with it (kernel.py, weights.py, timeline.py) need numba, the extra `fast`.
"""

from importlib import import_module


def available() -> bool:
    """Is numba there, and can it be imported?"""
    try:
        import_module("numba")
    except ImportError:
        return False
    return True
