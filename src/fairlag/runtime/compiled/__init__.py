"""Virtual time at compiled speed for strategies whose rules are known, in audits and for small models that learn.

virtual.py is the definition. All but spec.py needs numba, the extra `fast`.
"""

from importlib import import_module


def available() -> bool:
    """Is numba there, can it be imported, and does it compile?"""
    try:
        numba = import_module("numba")
    except ImportError:
        return False
    return not numba.config.DISABLE_JIT
