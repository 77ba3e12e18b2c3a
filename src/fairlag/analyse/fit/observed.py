"""What runs show about a fleet: how long tasks took, which were lost, and how long clients then stayed away."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from math import inf

import numpy as np

from fairlag.analyse.fit.alike import CHANCE
from fairlag.analyse.fit.durations import lost_by_the_clock
from fairlag.analyse.fit.families import Sample
from fairlag.core.types import Floats, Integers, Outcome
from fairlag.errors import InputError
from fairlag.lab.folder import reading
from fairlag.lab.run import Run

_TASKS = f"""
SELECT client, ordinal, dispatched, ended, steps,
    CASE outcome WHEN '{Outcome.LOST}' THEN 1 WHEN '{Outcome.CANCELLED}' THEN 2 ELSE 0 END
FROM tasks ORDER BY client, dispatched, task
"""
_CAME, _LOST, _CANCELLED = range(3)
_LONGER = 2.0
"""With few later tasks, a first one is warm-up only if it is more than this many times as long as any of them."""
_ENOUGH = 10
"""With this many later tasks, all first ones count as warm-up."""
_TOGETHER = 50_000
"""The number of rows held as Python numbers at a time, because those take several times the memory."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks that ended, one entry each."""

    draw: Integers
    """A number of its draw: in the simulator, tasks of the same seed, client and ordinal have the same duration."""
    client: Integers
    dispatched: Floats
    """When its client could begin: when it was handed out, or when its device had ended the task before."""
    duration: Floats
    """Until its update arrived, or until it was lost or cancelled."""
    steps: Integers
    """The number of steps that the strategy asked for; 0 for the client's own number."""
    outcome: Integers
    away: Floats
    """From its end until the client's next task, or until the end of the run."""
    back: Floats
    """1 if there is a next task; 0 if the run ended before one ended."""
    left: Floats
    """From then until the end of the run."""
    first: Integers
    """1 for the first task of its client in a run."""

    def __len__(self) -> int:
        return len(self.client)

    def where(self, chosen: Integers) -> "Tasks":
        """The tasks at these places."""
        return Tasks(*(getattr(self, each.name)[chosen] for each in fields(self)))

    def of(self, clients: Integers) -> "Tasks":
        """The tasks of these clients."""
        return self.where(np.flatnonzero(np.isin(self.client, clients)))

    @property
    def came(self) -> Integers:
        """The places of tasks whose update arrived, merged or refused."""
        return np.flatnonzero(self.outcome == _CAME)

    @property
    def lost(self) -> Integers:
        """The places of tasks that were lost."""
        return np.flatnonzero(self.outcome == _LOST)

    @property
    def cancelled(self) -> Integers:
        """The places of tasks that were cancelled."""
        return np.flatnonzero(self.outcome == _CANCELLED)

    def settled(self) -> "Tasks":
        """The tasks dispatched so early that even the longest would have ended before the run did.

        Of the later tasks only short ones have ended. At most half of a run and half of its updates are left out.
        `durations` corrects for tasks that may still be missing, because each knows how long it could have been.
        """
        if not len(self.came):
            return self
        most = min(float(self.duration[self.came].max()), float(np.median(self.left[self.came])))
        end = self.dispatched + self.left
        return self.where(np.flatnonzero(self.left >= np.minimum(most, end / 2)))

    def warm_up(self, per: Integers | None = None) -> Integers:
        """The places of first tasks, in which for instance libraries load, and all nodes start their processes at once.

        Only clients with later tasks count. If there are few later tasks, such a first task is more than `_LONGER`
        times as long as any later task, and its logarithm is beyond the range of later ones: by chance alone, any first
        task of the group is beyond it with a probability of `CHANCE`.
        """
        lengths = np.log(np.maximum(self.duration if per is None else self.duration / per, 1e-9))
        later = np.intersect1d(self.came, np.flatnonzero(self.first == 0))
        known = np.isin(self.client, self.client[later])
        firsts = np.intersect1d(self.came, np.flatnonzero((self.first == 1) & known))
        if len(later) >= _ENOUGH:
            return firsts
        if len(later) < 2 or not len(firsts):
            return firsts[:0]
        seen, n = lengths[later], len(later)
        sigmas = float(import_module("scipy.special").stdtrit(n - 1, 1 - CHANCE / len(firsts)))
        beyond = float(seen.mean() + sigmas * seen.std(ddof=1) * np.sqrt(1 + 1 / n))
        return np.asarray(firsts[lengths[firsts] > max(beyond, float(seen.max()) + np.log(_LONGER))], np.int64)

    def durations(self, per: Integers | None = None) -> Sample:
        """How long tasks take: exact if the update arrived, cut off if the task was cancelled.

        Lost tasks count as cut off only if losses go by the clock. `per` divides each duration, for instance by steps.
        """
        lengths = self.duration if per is None else self.duration / per
        cut = self.cancelled
        if len(self.lost) and len(self.came) and lost_by_the_clock(lengths[self.came], lengths[self.lost]):
            cut = np.concatenate([cut, self.lost])
        window = self.left if per is None else self.left / per
        return Sample(lengths[self.came], lengths[cut], window[self.came])

    def absences(self, *, queue: bool) -> Sample:
        """How long clients stayed away after a loss; cut off for those that had not come back by the end.

        If clients queue for tasks, the mean time that they wait after an update is subtracted.
        """
        waits = self.away[np.intersect1d(self.came, np.flatnonzero(self.back))]
        wait = float(waits.mean()) if queue and len(waits) else 0.0
        least = 1e-3 * float(self.duration[self.came].mean()) if len(self.came) else 1e-3
        lengths = np.maximum(self.away - wait, least)
        back, lost = self.back[self.lost] > 0, lengths[self.lost]
        return Sample(lost[back], lost[~back])


@dataclass(frozen=True, slots=True)
class Observed:
    """What the runs of one fleet show about it."""

    groups: tuple[str, ...]
    group_of: Integers
    """Per client: the place of its group."""
    tasks: Tasks
    repeated: int
    """The number of tasks that were left out because they repeat a draw."""
    ends: tuple[float, ...]
    """When each run ended; for an unfinished run, how far it has come."""
    running: int | None
    """The number of tasks that were running at the end; None if a run did not record it."""
    per_device: dict[str, int]
    """By group: how many clients in a row are one device."""


def observed(runs: Sequence[Run], until: float = inf) -> Observed:
    """Reads the tasks of runs that share a fleet; of tasks with the same draw, only one.

    With `until`, runs count as if they had ended then.
    """
    groups = tuple(runs[0].groups)
    members = [_members(run) for run in runs]
    if other := next((run for run, each in zip(runs, members, strict=True) if each != members[0]), None):
        raise InputError(
            f"the runs in {str(runs[0].folder)!r} and {str(other.folder)!r} are of different fleets: "
            "fit those of one fleet at a time"
        )
    # The durations of a real fleet are not drawn, so no two of its runs repeat each other.
    sources = [str(run.folder) if run.deployed else f"{run.seed}" for run in runs]
    numbers = {source: number for number, source in enumerate(dict.fromkeys(sources))}
    shared = _per_device(runs)
    devices = _devices(members[0], shared)
    tables = [_rows(run, until) for run in runs]
    read = [
        _tasks(*table, devices, numbers[source], len(numbers)) for table, source in zip(tables, sources, strict=True)
    ]
    tasks = Tasks(*(np.concatenate([getattr(part, each.name) for part in read]) for each in fields(Tasks)))
    draws = tasks.client * (1 + tasks.draw.max(initial=0)) + tasks.draw
    _, first = np.unique(draws, return_index=True)
    counts = [run.meta.get("counts") if end < until else None for run, (_, end) in zip(runs, tables, strict=True)]
    places = {name: place for place, name in enumerate(groups)}
    return Observed(
        groups=groups,
        group_of=np.array([places[name] for name in members[0]], np.int64),
        tasks=tasks.where(np.sort(first)),
        repeated=len(tasks) - len(first),
        ends=tuple(end for _, end in tables),
        running=None if None in counts else sum(int(each["running"]) for each in counts if each),
        per_device=shared,
    )


def _per_device(runs: Sequence[Run]) -> dict[str, int]:
    """By group: how many clients in a row are one device, as deployed with `queued`, or as simulated."""
    found = []
    for run in runs:
        tables = {table["group"]: table for table in run.settings["clients"]}
        queued = int(run.meta.get("queued", 1))
        found.append({name: queued * int(tables.get(name, {}).get("per_device") or 1) for name in run.groups})
    if other := next((run for run, each in zip(runs, found, strict=True) if each != found[0]), None):
        raise InputError(
            f"the runs in {str(runs[0].folder)!r} and {str(other.folder)!r} differ in the tasks per device: "
            "fit those with equally many"
        )
    return found[0]


def _devices(members: Sequence[str], per_device: dict[str, int]) -> Integers:
    """Per client: a client that stands for its device, the first one."""
    found = np.arange(len(members))
    for name, many in per_device.items():
        mine = np.array([member == name for member in members])
        found[mine] = found[mine][np.arange(int(mine.sum())) // many * many]
    return found


def _begun(device: Integers, dispatched: Floats, ended: Floats) -> Floats:
    """When each task began: once its device, which does one task after the other, had ended the task before.

    >>> _begun(np.array([0, 0, 1]), np.zeros(3), np.array([11.0, 5.0, 7.0])).tolist()
    [5.0, 0.0, 0.0]
    """
    order = np.lexsort((dispatched, ended, device))
    alike = np.flatnonzero(device[order][1:] == device[order][:-1])
    before, after = order[alike], order[alike + 1]
    begun = dispatched.copy()
    begun[after] = np.maximum(dispatched[after], ended[before])
    return begun


def _members(run: Run) -> list[str]:
    with reading(run.folder) as database:
        return [name for (name,) in database.execute("SELECT grp FROM clients ORDER BY client")]


def _rows(run: Run, until: float) -> tuple[Floats, float]:
    """One row per task that ended in time, and when the run ended."""
    with reading(run.folder) as database:
        found = database.execute(_TASKS)
        parts = [np.array(some, np.float64) for some in iter(lambda: found.fetchmany(_TOGETHER), [])]
    rows = np.concatenate([np.empty((0, 6)), *parts])
    end = max(run.virtual_time, float(rows[:, 3].max(initial=0.0)))
    return rows[rows[:, 3] <= until], min(end, until)


def _tasks(rows: Floats, end: float, devices: Integers, source: int, sources: int) -> Tasks:
    client, ordinal, dispatched, ended, steps, outcome = rows.T
    follows = np.append(client[1:] == client[:-1], False)[: len(rows)]
    following = np.append(dispatched[1:], end)[: len(rows)]
    begun = dispatched
    if len(np.unique(devices)) < len(devices):
        begun = _begun(devices[client.astype(np.int64)], dispatched, ended)
    return Tasks(
        draw=(ordinal * sources + source).astype(np.int64),
        client=client.astype(np.int64),
        dispatched=begun,
        duration=ended - begun,
        steps=steps.astype(np.int64),
        outcome=outcome.astype(np.int64),
        away=np.where(follows, following, end) - ended,
        back=follows.astype(np.float64),
        left=end - begun,
        first=np.append(1, ~follows[:-1])[: len(rows)].astype(np.int64),
    )
