"""fairlag: an engine and test bench for asynchronous federated learning."""

from importlib import import_module, metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlag.analyse.audit import audit
    from fairlag.analyse.fit import fit_fleet
    from fairlag.lab.deploy import deploy
    from fairlag.lab.experiment import load
    from fairlag.lab.run import Run, runs
    from fairlag.lab.simulate import simulate
    from fairlag.report.compared import compare
    from fairlag.report.figures.picture import figure
    from fairlag.strategy import Strategy

__version__ = metadata.version("fairlag")
__all__ = [
    "Run",
    "Strategy",
    "__version__",
    "audit",
    "compare",
    "deploy",
    "figure",
    "fit_fleet",
    "load",
    "runs",
    "simulate",
]

_HOMES = {
    "Run": "fairlag.lab.run",
    "Strategy": "fairlag.strategy",
    "audit": "fairlag.analyse.audit",
    "compare": "fairlag.report.compared",
    "deploy": "fairlag.lab.deploy",
    "figure": "fairlag.report.figures.picture",
    "fit_fleet": "fairlag.analyse.fit",
    "load": "fairlag.lab.experiment",
    "runs": "fairlag.lab.run",
    "simulate": "fairlag.lab.simulate",
}


def __getattr__(name: str) -> object:
    """What users need, imported when first asked for: the core must not load what only the laboratory needs."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fairlag' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
