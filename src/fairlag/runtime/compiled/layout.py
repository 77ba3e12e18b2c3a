"""Where the compiled loop keeps what: the records of a run and of a client, and the rows and columns of its arrays."""

import numpy as np

BLOCK = 32
"""How many entries of the queue that are due later lie together."""

_SETTINGS = ["buffer", "fresh", "places", "rounds", "limit", "aggregations", "profiles", "window", "draws_from"]
_SIZES = ["bits", "buckets", "heap", "ahead"]
_COUNTERS = ["version", "received", "sequence", "running", "refused", "merged", "buffered", "draws"]
_LENGTHS = ["handed", "begun", "waiting", "idle"]
_QUEUE = ["near", "bucket", "free", "touched"]
_MOMENTS = ["now", "until", "rate", "base", "per_second"]
RUN = np.dtype(
    [(name, np.int64) for name in (*_SETTINGS, *_SIZES, *_COUNTERS, *_LENGTHS, *_QUEUE)]
    + [(name, np.float64) for name in _MOMENTS]
)
"""What the loop is to do, and how far it is."""

_HISTORY = ["stream", "given", "trained", "contributed", "updates", "staleness", "position", "law", "task"]
_DURATIONS = ["given_at", "due", "transfer", "factor", "since", "arrived", "busy"]
CLIENT = np.dtype([(name, np.int64) for name in _HISTORY] + [(name, np.float64) for name in _DURATIONS])
"""What is known of a client: two lines of the processor's cache."""

# The rows of `lists`, in each of which clients stand in order: to be given a task, waiting for a version, idle.
HANDED, WAITING, IDLE, LISTS = range(4)
# The columns of `recent`, one row a client: its last samples of staleness, as the ledger keeps them, then their sum.
# The columns of `laws`: a task takes factor · (low + width · u). A law below 0 is a row of `drawn` instead.
LOW, WIDTH, TIMES = range(3)
# The columns of `pieces`, one row per plan by which clients slow down: in parts of the run or in seconds, its period,
# how many ends there are; then the ends, then one factor more than those.
BY_PART, PERIOD, ENDS, PLAN = range(4)
# The rows of `chains`: the block after each, and those that are free. Of `buckets`: the first block, and its entries.
FOLLOWING, FREE = range(2)
FIRST, FILLED = range(2)
# The rows of `merged` and `moments`, one column an update: what came, and the ledger's account after the merge.
SENDER, LATE, UPDATES, STALENESS, RECENT, POSITION, TASK, ORDINAL, MERGED = range(9)
GIVEN_AT, CAME, BUSY, SINCE, ARRIVED, MOMENTS = range(6)
# The columns of `made`, one row a version.
TIME, RATE = range(2)
