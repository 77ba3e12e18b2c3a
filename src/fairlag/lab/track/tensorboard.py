"""TensorBoard: event files in the directory of the run, so that `tensorboard --logdir runs` shows every run by name."""

from pathlib import Path

from fairlag.lab.events import Begun

_FILES = "events.out.tfevents.*"
_SECONDS = 10
"""After so long a curve is shown, at the latest."""


class TensorBoard:
    """Writes the curve anew whenever a run goes on: what a crash left half written is no use to anyone.

    A TensorBoard that is open meanwhile drops what it had, since the new file says that it begins again at step 0.
    Its clock is the run's virtual time, counted from when the run was first begun.
    """

    held = -1.0

    def __init__(self, home: Path, run: Begun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        for old in run.folder.glob(_FILES):
            old.unlink()
        self._run = run
        self._writer = SummaryWriter(run.folder, purge_step=0, flush_secs=_SECONDS)
        rows = "".join(f"| {name} | {value} |\n" for name, value in run.settings.items())
        self._writer.add_text("settings", f"| setting | value |\n| --- | --- |\n{rows}", 0, run.created)

    def log(self, version: int, time: float, metrics: dict[str, float]) -> None:
        """Each number is a curve of its own."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, version, self._run.created + time)

    def end(self, status: str, version: int, time: float, metrics: dict[str, float]) -> None:
        """The last numbers of a finished run stand beside its settings in the table of all runs."""
        if metrics:
            self._writer.add_hparams(self._run.settings, metrics, run_name=".", global_step=version)
        self._writer.close()
