"""The tables of a run's database, by format, and the meaning of their columns."""

import re

from fairlag.lab import digest

FORMAT = 5
"""Increases when an older fairlag could not read the new files."""
LACKS = {3: "does not record who was present when", 4: "has no metric but accuracy"}
"""What is missing in the older formats that this version reads."""

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE clients (client INTEGER PRIMARY KEY, grp TEXT NOT NULL, examples INTEGER NOT NULL);
CREATE TABLE tasks (
    task INTEGER PRIMARY KEY, client INTEGER NOT NULL, version INTEGER NOT NULL, ordinal INTEGER NOT NULL,
    dispatched REAL NOT NULL, steps INTEGER NOT NULL, pace REAL NOT NULL, ended REAL NOT NULL, outcome TEXT NOT NULL,
    aggregation INTEGER, staleness INTEGER, weight REAL, reason TEXT
);
CREATE TABLE aggregations (
    version INTEGER PRIMARY KEY, time REAL NOT NULL, updates INTEGER NOT NULL, weight REAL, partial INTEGER NOT NULL,
    refused TEXT NOT NULL
);
CREATE TABLE parts (
    version INTEGER NOT NULL, client INTEGER NOT NULL, change REAL NOT NULL, PRIMARY KEY (version, client)
) WITHOUT ROWID;
CREATE TABLE units (version INTEGER PRIMARY KEY, acted REAL NOT NULL);
CREATE TABLE presence (
    number INTEGER PRIMARY KEY, time REAL NOT NULL, version INTEGER NOT NULL, first INTEGER NOT NULL,
    last INTEGER NOT NULL, present INTEGER NOT NULL
);
CREATE TABLE evaluations (
    version INTEGER NOT NULL, time REAL NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL,
    metric TEXT NOT NULL, examples INTEGER NOT NULL, value REAL, whole INTEGER NOT NULL,
    PRIMARY KEY (version, scope, name, metric, whole)
) WITHOUT ROWID;
CREATE TABLE client_scores (
    version INTEGER NOT NULL, client INTEGER NOT NULL, steps INTEGER NOT NULL, metric TEXT NOT NULL,
    examples INTEGER NOT NULL, value REAL, PRIMARY KEY (version, client, steps, metric)
) WITHOUT ROWID;
CREATE TABLE refusals (reason TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE checkpoints (
    number INTEGER PRIMARY KEY, version INTEGER NOT NULL, file TEXT NOT NULL, refusals TEXT NOT NULL,
    tasks BLOB NOT NULL, presence INTEGER NOT NULL
);
CREATE TABLE digests (
    name TEXT NOT NULL, block INTEGER NOT NULL, rows INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (name, block)
) WITHOUT ROWID;
"""
"""A task gets a row when it is merged or ends in another way; `ended` is when its update arrived, or when it was lost.
`steps` and `pace` are what the strategy asked of its local training: 0 steps means the client's own number of steps.
Only a strategy that keeps updates has rows in `parts` (by how many units a client's part of each version grows,
starting with that version) and in `units` (`acted` is what a unit was worth in all versions up to that one, summed).
`refused` says why an aggregation was not used, and who is suspected; otherwise it is empty.
A row of `evaluations` is the value of one metric, or of the loss, on some test examples.
A row of `client_scores` is the same on a client's own test examples, after `steps` local steps of its own.
A row of `presence` says that the clients from `first` to `last` joined or left when `version` was the newest.
NaN is stored as NULL. Times are virtual; or those of a real fleet, if `meta` has a `runtime`; or those of the wall
clock, sped up, if it has a `clock`. `checkpoints` are those that the run can go back to, with what was refused until
then, the tasks (as 64-bit numbers) whose rows were written since the previous checkpoint, and the number of the last
row of `presence`. `digests` has one row per block of rows of a table (digest.py)."""


def _without(table: str, schema: str) -> str:
    return re.sub(rf"CREATE TABLE {table} .*?;\n", "", schema, flags=re.DOTALL)


_FOUR = (
    _without("client_scores", SCHEMA)
    .replace(
        "metric TEXT NOT NULL, examples INTEGER NOT NULL, value REAL, whole",
        "examples INTEGER NOT NULL, correct INTEGER NOT NULL, loss REAL, whole",
    )
    .replace("name, metric, whole", "name, whole")
)
_THREE = _without("presence", _FOUR).replace(", presence INTEGER NOT NULL", "")
LAYOUT = digest.Layout(SCHEMA)
LAYOUTS = {FORMAT: LAYOUT, 4: digest.Layout(_FOUR), 3: digest.Layout(_THREE)}
"""The layouts of the formats that this version reads."""

_PARTS = "version, time, scope, name, {} AS metric, examples, {} AS value, whole FROM evaluations"
_BEFORE = " UNION ALL ".join(
    "SELECT " + _PARTS.format(*each)
    for each in (("'accuracy'", "CAST(correct AS REAL) / NULLIF(examples, 0)"), ("'loss'", "loss"))
)
SCORES = {FORMAT: "evaluations", 4: f"({_BEFORE})", 3: f"({_BEFORE})"}
"""By format: the table or query with the scores, with the columns of `evaluations`."""
_NO_CLIENTS = "(SELECT 0 AS version, 0 AS client, 0 AS steps, '' AS metric, 0 AS examples, 0.0 AS value WHERE 0)"
CLIENT_SCORES = {FORMAT: "client_scores", 4: _NO_CLIENTS, 3: _NO_CLIENTS}
"""The same for `client_scores`."""
