"""Reads a run directory: what a run recorded, as pandas frames, even while the run is in progress."""

from collections.abc import Callable
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from fairlag.core.accounts import Entitlement
from fairlag.errors import ExperimentError, InputError, UnreadableError
from fairlag.imported import is_code
from fairlag.lab import queries
from fairlag.lab.attendance import attended, terms_of
from fairlag.lab.card import Card, Group
from fairlag.lab.experiment import check
from fairlag.lab.folder import EXPERIMENT, MODEL, check_experiment, check_model, meta_of, reading, unpacked, unreadable
from fairlag.lab.lock import is_locked
from fairlag.lab.nodelog import Decided, decided, lines_of
from fairlag.lab.schema import CLIENT_SCORES, SCORES
from fairlag.lab.scores import SCOPES, curve_of, final_of, in_columns, known_metric, known_name, metrics_of
from fairlag.limits import json_of, printable, text_of
from fairlag.text.scored import COLUMNS, Scored

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn


class Run:
    """One run: every answer comes from what is on disk at that moment.

    >>> import fairlag
    >>> experiment = fairlag.load("demo").checked(aggregations=5)
    >>> run = fairlag.simulate(experiment, strategy="fairshare", workers=1)
    >>> run.version, run.influence("group")["updates"].tolist()
    (5, [25, 0])

    >>> Run("no/such/folder")
    Traceback (most recent call last):
    fairlag.errors.UnreadableError: there is no run in 'no/such/folder': it has no file run.sqlite
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        meta = self.meta
        self.experiment: str = meta.get("experiment", "")
        """The name of the experiment."""
        self.label: str = meta.get("label", "")
        """The label of the strategy."""
        self.seed: int = meta.get("seed", 0)
        self.groups: list[str] = meta["groups"]
        """The names of the client groups."""
        self.planned: int | None = meta.get("aggregations")
        """The planned number of aggregations, if the run ends after a number of them."""
        self.make: Callable[..., nn.Module] | None = None
        """The function that builds the model, if this process gave the experiment a function."""
        self.metrics: tuple[Scored, ...] = metrics_of(meta)
        """The metrics that its versions are judged by; the first leads."""
        self.trusted = False
        """Did this process make the run, and so import the code that it names?"""

    @property
    def meta(self) -> dict[str, Any]:
        """What is known about the run as a whole."""
        with reading(self.folder) as database:
            return meta_of(database, self.folder)

    @property
    def settings(self) -> dict[str, Any]:
        """The tables of its resolved experiment, with only its strategy and seed."""
        tables = self._written().get("experiment")
        if not isinstance(tables, dict) or not {"clients", "strategies", "seed"} <= tables.keys():
            raise unreadable(self.folder, f"its {EXPERIMENT} is not an experiment")
        try:
            check(tables)
        except ExperimentError as error:
            raise unreadable(self.folder, f"its {EXPERIMENT} is not an experiment: {error}") from None
        return tables

    @property
    def home(self) -> Path | None:
        """The folder of its experiment's relative paths and modules."""
        place = self._written().get("folder")
        return Path(place) if isinstance(place, str) else None

    @property
    def deployed(self) -> bool:
        """Was it made by a real fleet, so that its experiment's delays are only assumptions?"""
        return "runtime" in self.meta

    @property
    def real_time(self) -> bool:
        """Did its time really pass, on a real fleet or on the wall clock?"""
        return not {"runtime", "clock"}.isdisjoint(self.meta)

    @property
    def status(self) -> str:
        """Its status: "finished", "failed", "running", or "interrupted", which means that it can be resumed."""
        status = str(self.meta["status"])
        if status != "running":
            return status
        return "running" if is_locked(self.folder) else "interrupted"

    @property
    def failure(self) -> str:
        """Why it failed, such as that training diverged; empty if it did not."""
        return str(self.meta["reason"]) if self.status == "failed" else ""

    @property
    def version(self) -> int:
        """The newest version: the number of aggregations so far."""
        return int(self._newest()[0])

    @property
    def virtual_time(self) -> float:
        """When the newest version was made."""
        return self._newest()[1]

    @property
    def aggregations(self) -> "pd.DataFrame":
        """One row per version: when it was made, from how many updates, their weight, and whether they were too few.

        `refused` says why an aggregation was not used, and who is suspected; it is empty for all others.
        """
        return self._frame("SELECT * FROM aggregations ORDER BY version")

    @property
    def tasks(self) -> "pd.DataFrame":
        """One row per task that ended, with its outcome; `aggregation` is the version that merged it."""
        return self._frame("SELECT * FROM tasks ORDER BY task").astype({"staleness": "Int64"})

    @property
    def evaluations(self) -> "pd.DataFrame":
        """One row per evaluation, with a column per metric.

        `standard_error` is that of the leading metric if it is a share of examples: √(p(1 − p)/n) of p on n examples.
        """
        return self.evaluated(*SCOPES)

    def evaluated(self, *scopes: str) -> "pd.DataFrame":
        """Only the evaluations of these scopes; those of classes are by far the most."""
        source = SCORES[self.meta["format"]]
        rows = self._frame(queries.EVALUATIONS.format(source, ", ".join("?" * len(scopes))), scopes)
        return in_columns(rows, self.metrics)

    def client_scores(self, metric: str | None = None, *, personalised: bool = False) -> "pd.DataFrame":
        """A metric, or the leading one, of the last version on each client's own test examples: one row per client.

        With `personalised`, after the local steps that `personalise` in [evaluate] asks for. There are no rows if the
        run does not hold examples back for this (`clients` in [evaluate]), or has not come to its end.
        """
        source = CLIENT_SCORES[self.meta["format"]]
        query = queries.CLIENT_SCORES.format(source, source)
        return self._frame(query, (known_metric(metric, self.metrics).name, personalised))

    @property
    def clients(self) -> "pd.DataFrame":
        """One row per client: its group, and how many examples it holds."""
        return self._frame('SELECT client, grp AS "group", examples FROM clients ORDER BY client')

    @property
    def refusals(self) -> "pd.DataFrame":
        """The reasons why updates were refused, and the number of updates for each."""
        return self._frame("SELECT * FROM refusals ORDER BY reason")

    @property
    def node_log(self) -> "pd.DataFrame":
        """What was decided about the nodes of a deployment: one row per kind, node and reason, or per quarantine.

        `times` is how often it was decided, as far as the log says: repeats are written at 1, 2, 4, 8, … `first` and
        `last` are when the first and the last of these lines were written, on the server's clock, in UTC. There are no
        rows for a simulation.
        """
        import pandas as pd

        lines, _ = lines_of(self.folder, self.meta)
        return pd.DataFrame(decided(lines), columns=Decided._fields).astype({"client": "Int64", "times": "int64"})

    def influence(self, by: str = "client") -> "pd.DataFrame":
        """One row per client, or per group: its part of all updates, weight and clients, and its mean staleness.

        `weight` is the sum of its parts of all versions: the weights of its updates, each once for every version that
        the update is part of. That is one version, unless the strategy keeps updates until they are replaced.
        Each version entitles the clients that are present when it is made, equally or by the strategy's `importance`:
        `entitled` is the resulting part of all versions. `presence` is the part of all time that clients were present,
        and `per_presence` is influence ÷ presence.
        """
        if by not in ("client", "group"):
            raise InputError(f"influence was asked for by {by!r}, it must be by 'client' or by 'group'")
        frame = self._frame(queries.PER_CLIENT if by == "client" else queries.PER_GROUP)
        if by == "group":
            frame = frame.sort_values("group", key=lambda names: names.map(self.groups.index), ignore_index=True)
        frame = frame.assign(
            share=_part(frame["updates"]),
            influence=_part(frame["weight"]),
            fair=1 / max(1, len(frame)) if by == "client" else frame["clients"] / frame["clients"].sum(),
        )
        frame[["entitled", "presence"]] = self._attended(by, frame)
        return frame.assign(per_presence=(frame["influence"] / frame["presence"]).where(frame["presence"] > 0))

    def privacy(self) -> "pd.DataFrame":
        """One row per version and client in it: its weight, and its loss ρ and ε up to this version.

        >>> import fairlag
        >>> private = {"bound": 0.2, "clip": 1.0, "noise": 2.0, "delta": 1e-3}
        >>> experiment = fairlag.load("demo").only(["buffered_fedavg"]).checked(aggregations=5, privacy=private)
        >>> run = fairlag.simulate(experiment, workers=1)
        >>> run.privacy().columns.tolist(), f"{run.privacy()['epsilon'].max():.2f}"
        (['version', 'client', 'weight', 'loss', 'epsilon'], '2.63')
        """
        from fairlag.privacy.accounting import epsilons, losses

        table, most = self.settings.get("privacy", {}), self.largest_weight
        if most is None:
            raise InputError(
                f"the run in {str(self.folder)!r} added no noise, so its clients have no ε: give [privacy]"
            )
        frame = self._frame(queries.PER_VERSION)
        squares = (frame["weight"] ** 2).groupby(frame["client"]).cumsum()
        frame["loss"] = losses(squares, noise=table["noise"], bound=most)
        frame["epsilon"] = epsilons(frame["loss"], table["delta"])
        return frame

    @property
    def largest_weight(self) -> float | None:
        """The largest weight of a client in a version, from which its loss follows; None without noise."""
        most: float | None = self.meta.get("largest_weight")
        if most is not None and (gaps := self.meta.get("missing")):
            raise InputError(
                f"the run in {str(self.folder)!r} has lost the rows of versions {gaps[0][0]} to {gaps[-1][1]}, so what "
                "its clients paid for them is not known"
            )
        return most

    def _attended(self, by: str, frame: "pd.DataFrame") -> "pd.DataFrame":
        """The frame with what each client or group was entitled to, and how long it was present, as parts of all."""
        import pandas as pd

        with reading(self.folder) as database:
            found = attended(database, meta_of(database, self.folder), self.terms)
        if found is None:
            return frame[["fair", "fair"]].set_axis(["entitled", "presence"], axis="columns")
        sums = pd.DataFrame(found._asdict()).groupby(by)[["entitled", "seconds"]].sum()
        return sums.reindex(frame[by], fill_value=0.0).apply(_part).set_axis(frame.index)

    @property
    def terms(self) -> Entitlement | None:
        """What its strategy entitles clients to; None if not known."""
        try:
            return terms_of(self.settings)
        except UnreadableError:
            return None

    @property
    def lead(self) -> Scored:
        """Its leading metric: targets are values of it, and strategies are ranked by it."""
        return self.metrics[0]

    def curve(self, scope: str = "all", name: str | int | None = None, *, metric: str | None = None) -> "pd.DataFrame":
        """The evaluations during the run, one row per version, all on the same examples: a sample, if one was used.

        There is one column per metric; with `metric`, only its column, and only the versions that have it.
        """
        found = curve_of(self.evaluations, scope, self._known(scope, name))
        if metric is None:
            return found
        only = known_metric(metric, self.metrics).name
        of_others = {*found} - {*COLUMNS} - {only} | ({"standard_error"} if only != self.lead.name else set())
        return found.drop(columns=[*of_others]).dropna(subset=only).reset_index(drop=True)

    def score(self, metric: str | None = None, scope: str = "all", name: str | int | None = None) -> float:
        """A metric (the leading one) of the last evaluated version, on the whole test set if it was evaluated on that.

        The scope "all" means all test examples; "group", the labels that a client group holds; and "class", one label,
        such as 3 or "3". NaN if the run has not evaluated any of these examples.
        """
        return final_of(self.evaluations, known_metric(metric, self.metrics).name, scope, self._known(scope, name))

    def accuracy(self, scope: str = "all", name: str | int | None = None) -> float:
        """The accuracy of the last evaluated version: `score("accuracy", scope, name)`."""
        return self.score("accuracy", scope, name)

    def _known(self, scope: str, name: str | int | None) -> str | None:
        return known_name(scope, name, self.groups, int(self.meta.get("classes", 0)))

    def tensors(self) -> dict[str, NDArray[Any]]:
        """The named arrays of the final model."""
        if (status := self.status) != "finished":
            how = (
                "run its app again to continue it" if self.deployed else f"`fairlag resume {self.folder}` continues it"
            )
            hint = "" if status == "running" else f"; {how}"
            raise InputError(f"the run in {str(self.folder)!r} has no final model yet: it is {status}{hint}")
        check_model(self.folder, self.meta)
        return unpacked(self.folder / MODEL)[0]

    def model(self, make: "Callable[..., nn.Module] | None" = None, *, code: bool = False) -> "nn.Module":
        """The final model of the run, ready to predict.

        `make` is the function that builds it, if the experiment was given a function instead of a name; the run that
        `fairlag.simulate` returns knows it. A user's own model is code: the module that the run names is imported only
        with `code=True`, unless this process made the run.
        """
        from fairlag.learn import models
        from fairlag.learn.flat import Flat

        tensors, meta = self.tensors(), self.meta
        written = self._written()
        table = dict(written["experiment"].get("model", {}))
        if not table:
            raise InputError(f"the run in {str(self.folder)!r} has no model: its experiment has none")
        use, make = table.pop("use"), make or self.make
        if make is None and use.startswith("<"):
            raise InputError(
                f"the model of the run in {str(self.folder)!r} was given as the Python function {use}: "
                "give it again, as in run.model(function)"
            )
        if make is None and is_code(use) and not (code or self.trusted):
            raise InputError(
                f"the model {use!r} of the run in {str(self.folder)!r} is code: if you trust it, "
                "`model(code=True)` imports it; or build the model yourself and load `tensors()`"
            )
        model = models.build(
            make or use,
            table,
            shape=tuple(meta["shape"]),
            classes=meta["classes"],
            seed=self.seed,
            folder=Path(written["folder"]) if written["folder"] else None,
            tokens=meta.get("tokens", False),
        )
        try:
            flat = Flat(model)
            flat.load(flat.layout.flatten(tensors))
        except InputError as error:
            raise InputError(f"the model of the run in {str(self.folder)!r} has changed: {error}") from None
        return model.eval()

    def _written(self) -> dict[str, Any]:
        """The experiment that it was made from, as it is on disk."""
        check_experiment(self.folder, self.meta)
        try:
            found = json_of(text_of(self.folder / EXPERIMENT))
        except (OSError, ValueError) as error:
            raise unreadable(self.folder, f"its {EXPERIMENT} is missing or damaged ({error})") from None
        if not isinstance(found, dict):
            raise unreadable(self.folder, f"its {EXPERIMENT} is not an experiment")
        return found

    def _newest(self) -> tuple[int, float]:
        with reading(self.folder) as database:
            found = database.execute("SELECT version, time FROM aggregations ORDER BY version DESC LIMIT 1").fetchone()
        return found or (0, 0.0)

    def _frame(self, query: str, parameters: tuple[str | bool, ...] = ()) -> "pd.DataFrame":
        import pandas as pd

        with reading(self.folder) as database:
            try:
                frame = pd.read_sql_query(query, database, params=parameters)
            except pd.errors.DatabaseError as error:  # its own message is the whole query
                raise error.__cause__ or error from None
            return frame.astype({name: kind for name, kind in queries.KINDS.items() if name in frame})

    def _card(self, *, groups: bool = True) -> Card:
        """The facts to show; groups need every task to be read."""
        evaluations = self.evaluations
        version, time = self._newest()
        return Card(
            folder=str(self.folder),
            experiment=self.experiment,
            label=self.label,
            seed=self.seed,
            status=self.status,
            reason=self.failure,
            version=version,
            planned=self.planned,
            time=time,
            until=self.meta.get("until_time"),
            score=final_of(evaluations, self.lead.name),
            groups=self._groups(evaluations) if groups else (),
            real_time=self.real_time,
            lead=self.lead,
        )

    def _groups(self, evaluations: "pd.DataFrame") -> tuple[Group, ...]:
        shares = self.influence("group")
        any_updates = shares["updates"].any()
        return tuple(
            Group(
                name=row["group"],
                clients=row["clients"],
                score=final_of(evaluations, self.lead.name, "group", row["group"]),
                influence=row["influence"] if any_updates else nan,  # without any influence there are no shares
                fair=row["fair"],
                entitled=row["entitled"],
                staleness=row["staleness"],
            )
            for row in shares.to_dict("records")
        )

    def __repr__(self) -> str:
        return printable(self._card(groups=False).in_a_line())

    def __str__(self) -> str:
        return printable(self._card().text())

    def _repr_html_(self) -> str:
        return self._card().html()


def _part(amounts: "pd.Series[float]") -> "pd.Series[float]":
    """The shares of their sum."""
    total = amounts.sum()
    return amounts / total if total else 0.0 * amounts
