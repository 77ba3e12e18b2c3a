"""The data layout of the compiled loop: the records of a run and of a client, the rows and columns of its arrays."""

import numpy as np

BLOCK = 32
"""How many later entries of the queue one block holds."""

_SETTINGS = ["trigger", "buffer", "fresh", "places", "rounds", "limit", "delay", "profiles", "window", "draws_from"]
_ENDS = ["aggregations", "full", "patience"]
_SIZES = ["bits", "buckets", "heap", "spare", "ahead"]
_COUNTERS = ["version", "received", "sequence", "running", "merged", "buffered", "missing", "size", "quiet", "draws"]
_LENGTHS = ["handed", "begun", "waiting", "idle"]
_QUEUE = ["near", "stale", "bucket", "free", "touched"]
_MOMENTS = ["now", "until", "rate", "wasted", "base", "per_second"]
RUN = np.dtype(
    [(name, np.int64) for name in (*_SETTINGS, *_ENDS, *_SIZES, *_COUNTERS, *_LENGTHS, *_QUEUE)]
    + [(name, np.float64) for name in _MOMENTS]
)
"""The settings of a run, and its progress."""
COUNT, EVERYONE_FIRST, EVERYONE = range(3)
"""The triggers: a number of updates; the same, but for the first version one of everyone; at least one of everyone."""

_HISTORY = ["stream", "given", "trained", "contributed", "updates", "staleness", "position", "law", "task"]
_DURATIONS = ["given_at", "due", "transfer", "factor", "since", "arrived", "busy"]
CLIENT = np.dtype([(name, np.int64) for name in _HISTORY] + [(name, np.float64) for name in _DURATIONS])
"""The record of a client: two cache lines."""

# The rows of `lists`. Three are lists of clients in order: next to get a task, waiting for a version, idle. The others
# have one column per client and a last one: how many of its tasks were refused and called off, the version for which it
# last sent an update, and the clients of the running tasks before and after its own, in order of dispatch.
HANDED, WAITING, IDLE, REFUSED, CANCELLED, SENT, EARLIER, LATER, LISTS = range(9)
# The columns of `recent`, one row per client: its last samples of staleness, as in the ledger, then their sum.
# The columns of `laws`: a task takes factor · (low + width · u). A negative law is a row of `drawn` instead.
LOW, WIDTH, TIMES = range(3)
# The columns of `pieces`, one row per plan that slows clients down: in parts of the run or in seconds, its period, the
# number of ends; then the ends, then the factors, one more than ends.
BY_PART, PERIOD, ENDS, PLAN = range(4)
# The rows of `chains`: the next block of each block, and the free blocks. Of `buckets`: the first block, and its
# entries.
FOLLOWING, FREE = range(2)
FIRST, FILLED = range(2)
# The rows of `merged` and `moments`, one column per update: the update, and its client's history after the merge.
SENDER, LATE, UPDATES, STALENESS, RECENT, POSITION, TASK, ORDINAL, MERGED = range(9)
GIVEN_AT, CAME, BUSY, SINCE, ARRIVED, MOMENTS = range(6)
# The columns of `made`, one row per version.
TIME, RATE = range(2)
