"""The SQL queries of `Run`, and the types of their columns."""

EVALUATIONS = "SELECT * FROM {} WHERE scope IN ({}) ORDER BY version, scope, name, whole"

CLIENT_SCORES = """
SELECT client, grp AS "group", scores.examples, value FROM {} AS scores JOIN clients USING (client)
WHERE version = (SELECT MAX(version) FROM {} AS every) AND metric = ? AND (steps > 0) = ? ORDER BY client
"""
PER_CLIENT = """
SELECT client, grp AS "group", examples, COALESCE(updates, 0) AS updates,
    COALESCE(CASE WHEN EXISTS (SELECT 1 FROM parts) THEN lasting ELSE weight END, 0) AS weight, staleness
FROM clients LEFT JOIN (
    SELECT client, COUNT(*) AS updates, SUM(weight) AS weight, AVG(staleness) AS staleness
    FROM tasks WHERE outcome = 'aggregated' GROUP BY client
) USING (client) LEFT JOIN (
    SELECT client, SUM(change * (last.acted - COALESCE(before.acted, 0))) AS lasting
    FROM parts LEFT JOIN units AS before ON before.version = parts.version - 1,
        (SELECT acted FROM units ORDER BY version DESC LIMIT 1) AS last
    GROUP BY client
) USING (client) ORDER BY client
"""
"""An update that is kept counts in every version that it is part of; any other, in the version that merged it."""

PER_VERSION = """
SELECT aggregation AS version, client, SUM(weight) AS weight FROM tasks WHERE outcome = 'aggregated'
GROUP BY aggregation, client ORDER BY aggregation, client
"""

PER_GROUP = f"""
SELECT "group", COUNT(*) AS clients, SUM(examples) AS examples, SUM(updates) AS updates, SUM(weight) AS weight,
    SUM(staleness * updates) / SUM(updates) AS staleness
FROM ({PER_CLIENT}) GROUP BY "group"
"""

KINDS = {
    **dict.fromkeys(
        ("client", "clients", "count", "examples", "ordinal", "steps", "task", "updates", "version"), "int64"
    ),
    **dict.fromkeys(("dispatched", "ended", "loss", "pace", "staleness", "time", "value", "weight"), "float64"),
    **dict.fromkeys(("partial", "whole"), "bool"),
    "aggregation": "Int64",
}
"""The type of each column that is not text, so that frames without rows or with gaps have it too."""
