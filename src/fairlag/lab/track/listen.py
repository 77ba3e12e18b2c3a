"""Sends the events of a run to trackers: loads them, says what is missing, and continues without those that fail."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fairlag.extras import optional
from fairlag.lab.events import Begun, Evaluated, Event, Over, Progress
from fairlag.lab.track import ALL, Tracker
from fairlag.lab.track.mlflow import MLflow
from fairlag.lab.track.points import Points
from fairlag.lab.track.tensorboard import TensorBoard
from fairlag.lab.track.wandb import WeightsAndBiases
from fairlag.limits import printable

_KINDS: dict[str, tuple[type[Tracker], str]] = {
    "mlflow": (MLflow, "mlflow.tracking"),
    "tensorboard": (TensorBoard, "torch.utils.tensorboard"),
    "wandb": (WeightsAndBiases, "wandb"),
}
"""Each tracker, with what it imports when it is used."""

_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # an unreachable server must not delay a run for minutes
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "WANDB_ERROR_REPORTING": "false",
}
"""Environment variables to set before the libraries are imported; the user's own values take precedence."""


class Trackers:
    """Tells trackers about runs, one run after the other."""

    def __init__(self, names: Sequence[str], home: Path) -> None:
        """Refuses trackers that cannot be loaded; `home` is the folder of the runs."""
        self._kinds = {name: _loaded(name) for name in names}
        self._home = home
        self._open: dict[str, Tracker] = {}
        self._points: Points | None = None

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def __call__(self, event: Event) -> None:
        """Takes an event of the current run."""
        if not self._kinds or isinstance(event, Progress | Evaluated):
            return
        if isinstance(event, Begun):
            self._begin(event)
        if self._points is not None and self._open:
            self._catch_up(self._points, finished=isinstance(event, Over) and event.status == "finished")
            if isinstance(event, Over):
                self._end(self._points, event)

    def _begin(self, run: Begun) -> None:
        every = run.settings["evaluate.every"]
        assert isinstance(every, int)
        self._points = Points(run.folder, every, trains="data.use" in run.settings)
        self._open = {}
        for name, kind in tuple(self._kinds.items()):
            with self._survived(name):
                self._open[name] = kind(self._home, run)

    def _catch_up(self, points: Points, *, finished: bool) -> None:
        for point in points.new(finished=finished):
            for name, tracker in tuple(self._open.items()):
                if point.version > tracker.held:
                    with self._survived(name):
                        tracker.log(point.version, point.time, point.metrics)

    def _end(self, points: Points, over: Over) -> None:
        last = points.last()
        metrics = {f"final/{name}": value for name, value in last.metrics.items()}
        for name, tracker in tuple(self._open.items()):
            if tracker.held < ALL:
                with self._survived(name):
                    tracker.end(over.status, last.version, last.time, metrics if over.status == "finished" else {})
        self._open = {}

    @contextmanager
    def _survived(self, name: str) -> Iterator[None]:
        """Inside, an exception of a tracker ends its tracking, also of all later runs, but not the run."""
        try:
            yield
        except Exception as error:
            self._kinds.pop(name, None)
            self._open.pop(name, None)
            why = " ".join(str(error).split()) or type(error).__name__
            print(printable(f"tracking by {name} has stopped, the run continues: {why}"), file=sys.stderr, flush=True)


def _loaded(name: str) -> type[Tracker]:
    for variable, value in _QUIET.items():
        os.environ.setdefault(variable, value)
    kind, library = _KINDS[name]
    optional(library, "track", f"tracking by {name}")
    return kind
