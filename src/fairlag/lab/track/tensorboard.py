"""TensorBoard: event files in the directory of each run, which `tensorboard --logdir runs` shows by name."""

from pathlib import Path
from time import sleep, time

from fairlag.lab.events import Begun
from fairlag.lab.track import ALL

_FILES = "events.out.tfevents.*"
_LAST = ".finished"
"""Ends the name of an empty event file which says that the others are complete."""
_SECONDS = 10
"""After so long a curve is shown, at the latest."""


class TensorBoard:
    """Writes the curve anew whenever a run continues, as nobody can say how much of it a crash left.

    The new file says that it begins again at step 0: that makes TensorBoard drop what it read from older ones. They
    stay, because a TensorBoard that is open would never get past one that is gone. Its clock is virtual time, since
    the run was created.
    """

    def __init__(self, home: Path, run: Begun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        old = [file.name for file in run.folder.glob(_FILES)]
        self.held = ALL if any(name.endswith(_LAST) for name in old) else -1.0
        if self.held == ALL:
            return
        if old:  # files are read in the order of the second in which they were made
            sleep(min(max(int(max(old).split(".")[3]) + 1 - time(), 0.0), 1.0))
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
        from torch.utils.tensorboard import SummaryWriter

        if metrics:
            self._writer.add_hparams(self._run.settings, metrics, run_name=".", global_step=version)
        self._writer.close()
        if metrics:
            SummaryWriter(self._run.folder, filename_suffix=_LAST).close()
