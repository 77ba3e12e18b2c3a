"""fairlag: an engine and test bench for asynchronous federated learning."""

from importlib import import_module, metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlag.analyse.audit import audit
    from fairlag.lab.experiment import load
    from fairlag.lab.run import Run
    from fairlag.lab.simulate import simulate
    from fairlag.strategy import Strategy

__version__ = metadata.version("fairlag")
__all__ = ["Run", "Strategy", "__version__", "audit", "load", "simulate"]

_HOMES = {
    "Run": "fairlag.lab.run",
    "Strategy": "fairlag.strategy",
    "audit": "fairlag.analyse.audit",
    "load": "fairlag.lab.experiment",
    "simulate": "fairlag.lab.simulate",
}


def __getattr__(name: str) -> object:
    """What users need, imported when first asked for: the core must not load what only the laboratory needs."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fairlag' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
