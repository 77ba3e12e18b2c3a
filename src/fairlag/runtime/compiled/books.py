"""The weights of updates by account, version by version, compiled; accounts.py is the reference."""

from math import inf
from typing import Any

import numpy as np

from fairlag.core.accounts import COLUMNS, MOST_SHARED, Entitlement
from fairlag.core.columns import lines
from fairlag.core.state import State
from fairlag.core.types import Floats, Integers
from fairlag.fleet.clients import Fleet
from fairlag.jit import compiled, make_ready
from fairlag.runtime.compiled.queue import rise, sink
from fairlag.runtime.compiled.spec import Spending
from fairlag.runtime.compiled.sums import exact_sum

BOOKS = np.dtype(
    [(name, np.float64) for name in ("level", "total", "kept", "limit", "reward", "most", "cap", "soonest", "touched")]
    + [(name, np.int64) for name in ("members", "entries", "heap")]
)
"""The first entries are a heap. Later ones enter it only when some client may have reached the limit."""
ACCOUNT = np.dtype({"names": COLUMNS, "formats": [np.float64] * len(COLUMNS), "itemsize": 64})
"""One cache line per account."""


def importance(terms: Entitlement, fleet: Fleet, examples: Integers) -> Floats:
    """Per client: its importance, if it always has this many examples."""
    if terms.importance == "examples":
        return examples.astype(np.float64)
    return np.array([terms.of_group(group.name) for group in fleet.groups])[fleet.group_of]


class Books:
    """The accounts of a fleet whose clients are always present.

    >>> books = Books(Spending(Entitlement(), most=None, cap=None), np.ones(2))
    >>> books.weights(np.array([[0, 1], [0, 0]])).tolist()
    [[0.5, 0.5], [0.25, 0.25]]
    """

    def __init__(self, spending: Spending, importance: Floats) -> None:
        """Empty accounts of clients with these importances."""
        self._books = books = np.zeros(1, BOOKS)
        for name, bound in (("limit", spending.terms.limit), ("most", spending.most), ("cap", spending.cap)):
            books[name] = inf if bound is None else bound
        books["soonest"] = inf
        books["reward"] = spending.terms.reward
        self._accounts = accounts = lines(len(importance), 1).reshape(-1).view(ACCOUNT)
        accounts["importance"], accounts["due"], accounts["there"] = importance, inf, 1.0
        self._levels: Floats = np.empty(2 * len(importance) + 2)
        self._clients: Integers = np.empty(2 * len(importance) + 2, np.int64)
        make_ready(_weigh, *self._arguments(np.empty((0, 1), np.int64), np.empty((0, 1))))

    def weights(self, senders: Integers) -> Floats:
        """The weights of the next versions, one row each, made of one update from each of these senders."""
        weights: Floats = np.empty(senders.shape)
        _weigh(*self._arguments(senders, weights))
        return weights

    def _arguments(self, senders: Integers, weights: Floats) -> tuple[Any, ...]:
        parts = np.empty(weights.shape[1] + 1)
        return self._books, self._accounts, self._levels, self._clients, senders, weights, parts

    def state(self) -> State:
        """The state in the form of `Accounts`."""
        books = self._books[0]
        return {
            **{name: float(books[name]) for name in ("level", "total", "kept")},
            "members": int(books["members"]),
            **{name: self._accounts[name].copy() for name in COLUMNS},
        }


@compiled
def _held(books: Any, account: Any) -> float:
    held: float = account.earns * (books.level - account.base) if account.earns else account.balance
    return held


@compiled
def _plan(books: Any, accounts: Any, clients: Integers, client: int) -> None:
    account = accounts[client]
    if books.limit < inf:
        level = account.base + books.limit / account.importance
        if level < account.due:
            account.due = level
            books.soonest = min(books.soonest, level)
            if books.entries == len(clients):  # most of it does not count any more
                _plan_anew(books, accounts, clients)
            else:
                clients[books.entries] = client
                books.entries += 1


@compiled
def _plan_anew(books: Any, accounts: Any, clients: Integers) -> None:
    books.entries = books.heap = 0
    for client in range(len(accounts)):
        if accounts[client].due < inf:
            clients[books.entries] = client
            books.entries += 1


@compiled
def _retire(books: Any, accounts: Any, levels: Floats, clients: Integers) -> None:
    for place in range(books.heap, books.entries):
        rise(levels, clients, place, accounts[clients[place]].due, clients[place])
    while books.entries and levels[0] <= books.level:
        level, client = levels[0], clients[0]
        books.entries -= 1
        sink(levels, clients, books.entries)
        account = accounts[client]
        if level == account.due:
            account.due = inf
            if account.earns:
                level = account.base + books.limit / account.importance
                if level <= books.level:
                    account.balance = _held(books, account)
                    account.earns = 0.0
                    books.members -= 1
                    books.total = books.total - account.importance if books.members else 0.0
                else:
                    account.due = level
                    rise(levels, clients, books.entries, level, client)
                    books.entries += 1
    books.heap, books.soonest = books.entries, levels[0] if books.entries else inf


@compiled
def _earn(books: Any, accounts: Any, levels: Floats, clients: Integers, senders: Integers) -> None:
    count, new = len(senders), 0
    for client in senders:
        if not accounts[client].heard:
            accounts[client].heard = 1.0
            accounts[client].balance += (1.0 - books.reward) / count
            new += 1
    if books.soonest <= books.level:
        _retire(books, accounts, levels, clients)
    books.kept += (1.0 - books.reward) * (1.0 - new / count)
    if books.members:
        shared = min(books.kept, MOST_SHARED)
        books.level += shared / books.total
        books.kept -= shared
    if books.reward:
        for client in senders:
            account = accounts[client]
            if account.earns:
                account.base -= books.reward / count / account.importance
            else:
                account.balance += books.reward / count


@compiled
def _spend(books: Any, accounts: Any, clients: Integers, client: int, weight: float) -> None:
    account = accounts[client]
    if account.earns:
        account.base += weight / account.importance
        if books.reward:
            _plan(books, accounts, clients, client)
    else:
        account.balance -= weight
        if account.importance > 0 and account.balance < books.limit:
            account.earns = account.importance
            account.base = books.level - account.balance / account.importance
            books.total += account.importance
            books.members += 1
            _plan(books, accounts, clients, client)


@compiled
def _touch(books: Any, accounts: Any, senders: Integers) -> None:
    """Reads something of all senders: the processor fetches many at once, where weighing would ask one by one."""
    touched = 0.0
    for version in range(senders.shape[0]):
        for place in range(senders.shape[1]):
            touched += accounts[senders[version, place]].heard
    books.touched = touched


@compiled
def _weigh(
    kept: Any,
    accounts: Any,
    levels: Floats,
    clients: Integers,
    senders: Integers,
    weights: Floats,
    parts: Floats,
) -> None:
    books = kept[0]
    _touch(books, accounts, senders)
    for version in range(len(senders)):
        _earn(books, accounts, levels, clients, senders[version])
        for place in range(senders.shape[1]):
            client, count = senders[version, place], 0
            for other in senders[version]:
                count += other == client
            weights[version, place] = min(max(_held(books, accounts[client]), 0.0) / count, books.most)
        total = exact_sum(weights[version], parts)
        for place in range(senders.shape[1]):
            if total > books.cap:
                weights[version, place] *= books.cap / total
            _spend(books, accounts, clients, senders[version, place], weights[version, place])
