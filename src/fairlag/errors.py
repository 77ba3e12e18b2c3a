"""The exception tree: every error that fairlag raises on purpose, and a helper for their messages.

>>> import fairlag
>>> try:
...     fairlag.zoo.fedbuff(buffer=0)
... except fairlag.errors.InputError as error:
...     print(error)
the buffer is 0, it must be a positive whole number up to 10,000,000
"""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from fairlag.limits import sentence


def nearest(name: str, known: Iterable[str]) -> str:
    """A suggestion for a misspelt name, or else all known names.

    >>> nearest("agregations", ["aggregations", "seed"])
    "did you mean 'aggregations'?"
    >>> nearest("xyz", ["aggregations", "seed"]), nearest("xyz", [])
    ('choose from aggregations, seed', 'there are none')
    """
    names = sorted(known)
    if meant := get_close_matches(name, names, n=1):
        return f"did you mean {meant[0]!r}?"
    return f"choose from {', '.join(names)}" if names else "there are none"


class FairlagError(Exception):
    """Base of every deliberate error; its message is one sentence that a user can act on.

    FairlagError
    ├── InputError          something the user wrote: an experiment file, an option, a distribution
    │   ├── ExperimentError     an experiment file or preset
    │   ├── StrategyError       a strategy that cannot be built, or a user's rule that misbehaves
    │   ├── ExtraError          an optional package that is missing or cannot be imported
    │   ├── UnreadableError     a run directory whose files cannot be read
    │   └── StalledError        a strategy that waits for something that never happens on this fleet
    ├── DivergedError       a version of the model that is not finite
    ├── StoreError          a run directory that cannot be written, for example on a full disk
    ├── Interrupted         Ctrl-C during a run, after a checkpoint was made
    ├── WorkerError         a worker that died twice at the same task, or workers or compiled loops that cannot start
    ├── KeeperError         the mask keeper cannot be reached or does not answer
    │   └── RefusedError        the mask keeper refused a request
    └── ProtocolError       a runtime broke the server's contract (time ran backwards, a client joined twice)

    The command line prints an InputError as one sentence and exits with code 2. Messages are always printable and of
    bounded length, whatever they quote.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(sentence(message))


class InputError(FairlagError):
    """Something that the user wrote cannot be used; says what, and what would be accepted."""


class ExperimentError(InputError):
    """An experiment file or preset that cannot be read, or contradicts itself."""


class StrategyError(InputError):
    """A strategy that cannot be built, cannot run on this fleet, or returned something unusable."""


class ExtraError(InputError, ImportError):
    """An optional package that is missing, or that is installed and cannot be imported; says how to install it."""


class UnreadableError(InputError):
    """A run that cannot be read; says which, and why."""

    folder = Path()

    @classmethod
    def of(cls, folder: Path, sentence: str) -> "UnreadableError":
        """The error for the run in this folder."""
        error = cls(sentence)
        error.folder = folder
        return error


class StalledError(InputError):
    """A run that no longer makes progress; names the strategy and what it waits for."""


class DivergedError(FairlagError):
    """A version of the model is not finite: training cannot continue from it."""


class StoreError(FairlagError):
    """A run directory cannot be written; says what, where, and how to continue. Existing files are unharmed."""


class Interrupted(FairlagError):
    """The user pressed Ctrl-C: the run was saved and can be resumed."""


class WorkerError(FairlagError):
    """A worker died, was replaced, and died again; names the task and its client. Or no worker can start at all."""


class KeeperError(FairlagError):
    """The mask keeper of secure aggregation cannot be reached, or sent something that is not a reply."""


class RefusedError(KeeperError):
    """The mask keeper refused a request; `update` is the place of the update that is the reason, if one is."""

    def __init__(self, message: str, update: int | None = None) -> None:
        super().__init__(message)
        self.update = update


class ProtocolError(FairlagError):
    """A runtime broke the contract of the server: a bug in the runtime, never in the user's input."""
