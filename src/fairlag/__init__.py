"""fairlag: an engine and test bench for asynchronous federated learning.

This module's exports are public, and so are those of `fairlag.zoo` and `fairlag.rules`. Anything else may change
without notice.

>>> import fairlag
>>> fairlag.zoo.fedbuff(buffer=5, concurrency=10).trigger.label
'count(5)'
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlag import errors as errors
    from fairlag import flower as flower
    from fairlag import rules as rules
    from fairlag import zoo as zoo
    from fairlag.analyse.audit import audit as audit
    from fairlag.analyse.fit.fleet import fit_fleet as fit_fleet
    from fairlag.core import types as types
    from fairlag.core.buffer import Buffer as Buffer
    from fairlag.core.server import Server as Server
    from fairlag.core.strategy import Strategy as Strategy
    from fairlag.core.view import View as View
    from fairlag.data.dataset import Dataset as Dataset
    from fairlag.fleet.clients import Fleet as Fleet
    from fairlag.lab.deploy import deploy as deploy
    from fairlag.lab.experiment import Experiment as Experiment
    from fairlag.lab.experiment import load as load
    from fairlag.lab.run import Run as Run
    from fairlag.lab.runs import runs as runs
    from fairlag.lab.simulate import simulate as simulate
    from fairlag.learn import tasks as tasks
    from fairlag.learn.targets import Targets as Targets
    from fairlag.learn.task import Better as Better
    from fairlag.learn.task import Metric as Metric
    from fairlag.learn.task import Task as Task
    from fairlag.report.compared import compare as compare
    from fairlag.report.figures.picture import figure as figure

    __version__: str

_HOMES = {
    "Better": "fairlag.learn.task",
    "Buffer": "fairlag.core.buffer",
    "Dataset": "fairlag.data.dataset",
    "Experiment": "fairlag.lab.experiment",
    "Fleet": "fairlag.fleet.clients",
    "Metric": "fairlag.learn.task",
    "Run": "fairlag.lab.run",
    "Server": "fairlag.core.server",
    "Strategy": "fairlag.core.strategy",
    "Targets": "fairlag.learn.targets",
    "Task": "fairlag.learn.task",
    "View": "fairlag.core.view",
    "audit": "fairlag.analyse.audit",
    "compare": "fairlag.report.compared",
    "deploy": "fairlag.lab.deploy",
    "figure": "fairlag.report.figures.picture",
    "fit_fleet": "fairlag.analyse.fit.fleet",
    "load": "fairlag.lab.experiment",
    "runs": "fairlag.lab.runs",
    "simulate": "fairlag.lab.simulate",
}
_MODULES = {
    "errors": "fairlag.errors",
    "flower": "fairlag.flower",
    "rules": "fairlag.rules",
    "tasks": "fairlag.learn.tasks",
    "types": "fairlag.core.types",
    "zoo": "fairlag.zoo",
}
__all__ = ["__version__", *_HOMES, *_MODULES]


def __getattr__(name: str) -> object:
    """Imports public names on first use, so that the core does not load what only experiments need."""
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "__version__":
        return import_module("importlib.metadata").version("fairlag")
    raise AttributeError(f"module 'fairlag' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
