"""What a run or a simulation shows of a fleet in a window of time: the quantities that are compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fairlag.core.server import Server
from fairlag.core.types import Aggregation, Ended, Floats, Integers, Outcome, Row
from fairlag.fleet.clients import Fleet
from fairlag.lab.experiment import Experiment
from fairlag.lab.run import Run
from fairlag.runtime import virtual

HOUR, DAY, MEGABYTE = 3600.0, 86400.0, 1e6


@dataclass(frozen=True, slots=True)
class Seen:
    """The tasks of a run that ended, one entry each, and its versions."""

    groups: Sequence[str]
    """Per client: its group."""
    client: Integers
    dispatched: Floats
    ended: Floats
    merged: Floats
    """When the version that merged it was made; NaN if none did."""
    staleness: Floats
    weight: Floats
    refused: Integers
    """1 if it sent an update that was refused."""
    versions: Floats
    """When each version was made."""

    @classmethod
    def run(cls, run: Run) -> Self:
        """What a recorded run shows."""
        tasks, made = run.tasks, run.aggregations
        times = dict(zip(made["version"], made["time"], strict=True))
        return cls(
            groups=run.clients["group"].tolist(),
            client=tasks["client"].to_numpy(np.int64),
            dispatched=tasks["dispatched"].to_numpy(np.float64),
            ended=tasks["ended"].to_numpy(np.float64),
            merged=tasks["aggregation"].map(times).to_numpy(np.float64),
            staleness=tasks["staleness"].to_numpy(np.float64, na_value=np.nan),
            weight=tasks["weight"].to_numpy(np.float64, na_value=np.nan),
            refused=np.asarray(tasks["outcome"] == Outcome.REFUSED, np.int64),
            versions=made["time"].to_numpy(np.float64),
        )

    @classmethod
    def simulated(cls, experiment: Experiment, seed: int) -> Self:
        """What a simulation of the experiment's first strategy shows, without training."""
        fleet, rows, made = experiment.fleet(seed), list[tuple[float, ...]](), list[float]()

        def record(row: Row) -> None:
            if isinstance(row, Aggregation):
                made.append(row.time)
                parts = zip(row.tasks, row.arrivals, row.staleness, row.weights, strict=True)
                rows.extend((task.client, task.time, end, row.time, late, heavy, 0) for task, end, late, heavy in parts)
            elif isinstance(row, Ended):
                refused = row.outcome == Outcome.REFUSED
                rows.append((row.task.client, row.task.time, row.time, np.nan, np.nan, np.nan, refused))

        server = Server(
            experiment.strategy(experiment.strategies[0]),
            clients=fleet.clients,
            seed=seed,
            aggregations=experiment.aggregations,
            until_time=experiment.until_time,
            group_of=fleet.group_name,
            record=record,
        )
        virtual.run(server, fleet)
        return cls._of(fleet, np.array(rows, np.float64).reshape(-1, 7), np.array(made))

    @classmethod
    def _of(cls, fleet: Fleet, rows: Floats, made: Floats) -> Self:
        client, dispatched, ended, merged, staleness, weight, refused = rows.T
        return cls(
            groups=[fleet.group_name(each) for each in range(fleet.clients)],
            client=client.astype(np.int64),
            dispatched=dispatched,
            ended=ended,
            merged=merged,
            staleness=staleness,
            weight=weight,
            refused=refused.astype(np.int64),
            versions=made,
        )

    def quantities(self, start: float, end: float, bytes_: int, names: Mapping[str, str]) -> dict[str, float]:
        """Each quantity after `start` and up to `end`; `names` gives the group that each group is a part of.

        A task counts when its version was made, or when it ended if none merged it.
        """
        counted = np.where(np.isnan(self.merged), self.ended, self.merged)
        inside = (counted > start) & (counted <= end)
        merged = inside & ~np.isnan(self.merged)
        group_of = np.array([names[name] for name in self.groups])
        mine = group_of[self.client]
        versions = int(((self.versions > start) & (self.versions <= end)).sum())
        days = (end - start) / DAY
        sent = bytes_ / MEGABYTE * (inside.sum() + (inside & (merged | (self.refused > 0))).sum())
        found = {
            "versions per hour": versions * HOUR / (end - start),
            "megabytes per device and day": float(sent) / len(group_of) / days,
            "part of tasks lost": float((inside & ~merged).sum() / max(1, inside.sum())),
            "part of time waiting": self._waiting(start, end),
        }
        for name in dict.fromkeys(names.values()):
            here = merged & (mine == name)
            found[f"share of updates, {name}"] = float(here.sum() / max(1, merged.sum()))
            found[f"influence, {name}"] = float(self.weight[here].sum() / max(1e-12, self.weight[merged].sum()))
            found[f"staleness, {name}"] = float(self.staleness[here].mean()) if here.any() else np.nan
            found[f"updates per device and day, {name}"] = float(here.sum()) / int((group_of == name).sum()) / days
        return found

    def _waiting(self, start: float, end: float) -> float:
        """The part of all time without a task; after its last known one, a client is assumed to have one."""
        order = np.lexsort((self.dispatched, self.client))
        client, begun, ended = self.client[order], self.dispatched[order], self.ended[order]
        same = client[1:] == client[:-1]
        idle = np.clip(begun[1:], start, end) - np.clip(ended[:-1], start, end)
        return float(idle[same].sum()) / ((end - start) * len(self.groups))
