"""How many versions pass from one update of a client to its next, as a mean over intervals of a bounded length."""

from collections.abc import Iterable

from fairlag.core.state import State, rows, table, take


class Intervals:
    """Per client, the intervals between the versions that it took part in; a longer one ends after `longest` versions.

    >>> intervals = Intervals(longest=50)
    >>> means = []
    >>> for version in (0, 1, 4, 5):
    ...     intervals.merge(version, [7])
    ...     means.append(intervals.mean(7))
    >>> means  # of none, of 1, of 1 and 1, of 1, 1 and 3
    [1.0, 1.0, 1.0, 1.6666666666666667]
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._known: dict[int, tuple[int, int, int]] = {}
        """Per client: the version with which its current interval began, how many have ended, and their sum."""
        self._means: dict[int, float] = {}
        """Of the clients that take part in the version being made."""

    def join(self, client: int, version: int) -> None:
        """A client is new: its first interval begins with the newest version."""
        if version:
            self._known[client] = version, 0, 0

    def merge(self, version: int, clients: Iterable[int]) -> None:
        """The next version after this one has updates of these clients."""
        self._means = {}
        for client in dict.fromkeys(clients):
            since, count, total = self._known.get(client, (0, 0, 0))
            cuts, rest = divmod(version - since, self._longest)
            count, total = count + cuts, total + cuts * self._longest
            self._means[client] = total / count if count else 1.0
            self._known[client] = version + 1, count + 1, total + rest + 1

    def mean(self, client: int) -> float:
        """The mean of the intervals that ended before the version being made; 1 before the first."""
        return self._means[client]

    def state(self) -> State:
        """All intervals."""
        known = [(client, *facts) for client, facts in self._known.items()]
        return {"known": table(known, client=int, since=int, count=int, total=int)}

    def restore(self, state: State) -> None:
        """Replaces all intervals."""
        known = rows(take(state, "known", dict), "client", "since", "count", "total")
        self._known = {client: facts for client, *facts in known}  # type: ignore[misc]
