"""TensorBoard: event files in the directory of each run, which `tensorboard --logdir runs` shows by name."""

from pathlib import Path
from time import sleep, time

from fairlag.lab.events import Begun
from fairlag.lab.track import ALL

_FILES = "events.out.tfevents.*"
_LAST = ".finished"
"""The suffix of an empty event file, which marks the others as complete."""
_SECONDS = 10
"""The longest delay until a point is shown."""


class TensorBoard:
    """Writes the whole curve again whenever a run continues, because a crash may have left any part of it.

    The new file says that it restarts at step 0, so TensorBoard drops what it read from older files. They stay, because
    an open TensorBoard never gets past a file that was removed. Its clock is virtual time since the run's creation.
    """

    def __init__(self, home: Path, run: Begun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        old = [file.name for file in run.folder.glob(_FILES)]
        self.held = ALL if any(name.endswith(_LAST) for name in old) else -1.0
        if self.held == ALL:
            return
        if old:  # files are read in the order of their creation, in whole seconds
            sleep(min(max(int(max(old).split(".")[3]) + 1 - time(), 0.0), 1.0))
        self._run = run
        self._writer = SummaryWriter(run.folder, purge_step=0, flush_secs=_SECONDS)
        rows = "".join(f"| {name} | {value} |\n" for name, value in run.settings.items())
        self._writer.add_text("settings", f"| setting | value |\n| --- | --- |\n{rows}", 0, run.created)

    def log(self, version: int, time: float, metrics: dict[str, float]) -> None:
        """Each metric is its own curve."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, version, self._run.created + time)

    def end(self, status: str, version: int, time: float, metrics: dict[str, float]) -> None:
        """The final metrics of a finished run are next to its settings in the table of all runs."""
        from torch.utils.tensorboard import SummaryWriter

        if metrics:
            self._writer.add_hparams(self._run.settings, metrics, run_name=".", global_step=version)
        self._writer.close()
        if metrics:
            SummaryWriter(self._run.folder, filename_suffix=_LAST).close()
