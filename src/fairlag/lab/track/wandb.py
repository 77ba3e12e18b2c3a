"""Weights & Biases: offline in a folder `wandb` beside the runs, unless the user's WANDB_MODE says otherwise."""

import os
from pathlib import Path
from shutil import rmtree

from fairlag.lab.events import Begun
from fairlag.lab.plan import slug
from fairlag.lab.track import ALL

_TOLD = "fairlag-finished"
"""A file beside an offline record that is complete."""

_SETTINGS: dict[str, object] = {
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
"""A run and nothing else: not what the terminal shows, nor the code, the machine, or who is using it."""


class WeightsAndBiases:
    """Offline, a record is written anew whenever a run goes on, as nobody can say how much of it a crash left.

    `wandb sync` replaces what was uploaded of it before. Online, the server says how many steps it has.
    """

    def __init__(self, home: Path, run: Begun) -> None:
        import wandb

        mode = os.environ.get("WANDB_MODE") or "offline"
        place = Path(os.environ.get("WANDB_DIR") or home)
        self._offline = mode == "offline"
        if self._offline:
            earlier = list(place.glob(f"wandb/offline-run-*-{run.key}"))
            if any((folder / _TOLD).exists() for folder in earlier):
                self.held = ALL
                return
            for folder in earlier:
                rmtree(folder)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or slug(run.experiment, "fairlag"),
            dir=place,
            id=run.key,
            name=f"{run.label}, seed {run.seed}",
            group=run.label,
            config=run.settings,
            resume=None if self._offline else "allow",
            reinit="create_new",
            settings={**_SETTINGS, "mode": mode},
        )
        self.held = self._run.step - 1.0

    def log(self, version: int, time: float, metrics: dict[str, float]) -> None:
        """A step is a version."""
        self._run.log(metrics, step=version)

    def end(self, status: str, version: int, time: float, metrics: dict[str, float]) -> None:
        """The last numbers are the summary."""
        self._run.summary.update({"status": status, **metrics})
        self._run.finish(exit_code=0 if status == "finished" else 1)
        if self._offline and status == "finished":
            (Path(self._run.dir).parent / _TOLD).touch()
