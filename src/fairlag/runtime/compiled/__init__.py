"""Virtual time in compiled loops, for strategies with known rules: for audits, and for training small models.

virtual.py is the reference. All modules but spec.py need numba, the extra `fast`.
"""

from importlib import import_module


def available() -> bool:
    """Is numba installed, can it be imported, and does it compile?"""
    try:
        numba = import_module("numba")
    except Exception:  # a broken installation may raise anything; there is a slower way
        return False
    return not numba.config.DISABLE_JIT
