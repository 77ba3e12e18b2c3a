"""MLflow: records each run in an SQLite file next to the runs, or at the user's tracking URI."""

import os
import re
import warnings
from pathlib import Path

from fairlag.lab.events import Begun
from fairlag.lab.track import ALL

_TAG = "fairlag.run"
"""The tag that holds the key of the run, to find the record again."""
_MARK = "virtual_time"
"""The last metric of each point: if it is present, all others of its version are."""
_MOST = 100
"""The most parameters or metrics per request; MLflow's limit for parameters."""
_STATUS = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


class MLflow:
    """Continues after the newest version that the record holds. Its clock is virtual time since the run's creation."""

    def __init__(self, home: Path, run: Begun) -> None:
        import mlflow
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        local = None if mlflow.is_tracking_uri_set() else home.resolve()  # type: ignore[no-untyped-call]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from SQLAlchemy, about MLflow: users cannot fix it
            self._client = MlflowClient(None if local is None else f"sqlite:///{local / 'mlflow.db'}")
        self._created = run.created
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or run.experiment
        if (known := self._client.get_experiment_by_name(name)) is not None:
            experiment = known.experiment_id
        else:
            experiment = self._client.create_experiment(name, None if local is None else str(local / "mlartifacts"))
        self._id, status = self._record(experiment, run)
        if status == "FINISHED":
            self.held = ALL
            return
        history = self._client.get_metric_history(self._id, _MARK)
        self.held = float(max((metric.step for metric in history), default=-1))
        self._client.update_run(self._id, "RUNNING")
        parameters = [Param(_name(key), str(value)) for key, value in run.settings.items()]
        for start in range(0, len(parameters), _MOST):
            self._client.log_batch(self._id, params=parameters[start : start + _MOST])

    def _record(self, experiment: str, run: Begun) -> tuple[str, str]:
        """The id and the status of the record of a run, which is created if there is none."""
        found = list(self._client.search_runs([experiment], f"tags.`{_TAG}` = '{run.key}'", max_results=1))
        if not found:
            tags = {_TAG: run.key, "strategy": run.label, "seed": str(run.seed), "folder": str(run.folder.resolve())}
            start, title = self._moment(0.0), f"{run.label}, seed {run.seed}"
            found = [self._client.create_run(experiment, start_time=start, tags=tags, run_name=title)]
        return str(found[0].info.run_id), str(found[0].info.status)

    def log(self, version: int, time: float, metrics: dict[str, float]) -> None:
        """All metrics of a version get its time."""
        from mlflow.entities import Metric

        moment = self._moment(time)
        points = [Metric(_name(name), value, moment, version) for name, value in metrics.items()]
        for start in range(0, len(points), _MOST):
            self._client.log_batch(self._id, metrics=points[start : start + _MOST])

    def end(self, status: str, version: int, time: float, metrics: dict[str, float]) -> None:
        """Its duration is virtual too."""
        self.log(version, time, metrics)
        self._client.set_terminated(self._id, _STATUS[status], end_time=self._moment(time))

    def _moment(self, time: float) -> int:
        return round(1000 * (self._created + time))


def _name(words: str) -> str:
    """A name that MLflow accepts: letters, digits and a few signs, and no path that leads elsewhere.

    >>> _name("influence/group/50%/../x")
    'influence/group/50_/_/x'
    """
    parts = (re.sub(r"[^\w\-. :]", "_", part) for part in words.split("/"))
    return "/".join(part.rstrip(".") or "_" for part in parts)
