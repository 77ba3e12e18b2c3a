"""Weights & Biases: records offline in a folder `wandb` next to the runs, unless WANDB_MODE is set."""

import os
from pathlib import Path
from shutil import rmtree

from fairlag.lab.events import Begun
from fairlag.lab.plan import slug

_SETTINGS: dict[str, object] = {
    "host": "",
    "console": "off",
    "silent": True,
    "disable_git": True,
    "disable_code": True,
    "save_code": False,
    "symlink": False,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
}
"""Record only the run: not the terminal's output, the code, the machine or its user."""


class WeightsAndBiases:
    """Offline, a record is written again whenever it is opened: W&B's own process writes the file, so a crash may have
    left any part of it. `wandb sync` replaces what was uploaded before.

    Online, the server knows how many steps it has.
    """

    def __init__(self, home: Path, run: Begun) -> None:
        import wandb

        mode = os.environ.get("WANDB_MODE") or "offline"
        place = Path(os.environ.get("WANDB_DIR") or home)
        offline = mode == "offline"
        for earlier in place.glob(f"wandb/offline-run-*-{run.key}") if offline else ():
            rmtree(earlier)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or slug(run.experiment, "fairlag"),
            dir=place,
            id=run.key,
            name=f"{run.label}, seed {run.seed}",
            group=run.label,
            config=run.settings,
            resume=None if offline else "allow",
            reinit="create_new",
            settings={**_SETTINGS, "mode": mode},
        )
        self.held = self._run.step - 1.0

    def log(self, version: int, time: float, metrics: dict[str, float]) -> None:
        """A step is a version."""
        self._run.log(metrics, step=version)

    def end(self, status: str, version: int, time: float, metrics: dict[str, float]) -> None:
        """The final metrics are the summary."""
        self._run.summary.update({"status": status, **metrics})
        self._run.finish(exit_code=0 if status == "finished" else 1)
