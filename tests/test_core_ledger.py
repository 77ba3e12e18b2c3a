"""The ledger: every column after a scripted history, windows that drop the oldest, rows that grow, a read-only view."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlag.core.ledger import Ledger
from fairlag.core.types import Dispatch, Integers, Report
from fairlag.core.view import View


def ids(*clients: int) -> Integers:
    return np.array(clients)


def contribute(ledger: Ledger, client: int, staleness: int, *, start: float = 0.0, end: float = 1.0) -> None:
    """One whole life of a task whose update is merged alone, `staleness` versions late."""
    ledger.version += staleness
    version = ledger.version - staleness
    ledger.time = start
    number = int(ledger.integers["dispatched"].sum())
    task = ledger.dispatch(number, client, version)
    del ledger.running[number]
    ledger.time = end
    ledger.admit(task, Report(7))
    ledger.merge()


def new(clients: int, *, window: int = 0) -> tuple[Ledger, View]:
    ledger = Ledger(clients=clients, window=window)
    for client in range(clients):
        ledger.join(client)
    return ledger, View(ledger)


def test_a_dispatch_is_the_record_of_the_task() -> None:
    ledger, view = new(2)
    ledger.time, ledger.version = 3.5, 4
    task = ledger.dispatch(0, 1, ledger.version)
    assert type(task) is Dispatch and task == Dispatch(task=0, client=1, version=4, ordinal=0, time=3.5)
    assert view.running == 1 and ledger.running == {0: task}
    assert ledger.dispatch(1, 1, 4).ordinal == 1 and ledger.dispatch(2, 0, 4).ordinal == 0


def test_an_admitted_update_waits_in_the_buffer_and_counts_when_merged() -> None:
    ledger, view = new(2)
    ledger.time = 0.0
    task = ledger.dispatch(0, 1, ledger.version)
    ledger.time = 2.0
    ledger.admit(task, Report(30))
    assert view.buffered == 1 and view.update_counts.tolist() == [0, 0] and view.examples.tolist() == [1, 30]
    ledger.version = 3
    assert ledger.merge() == ((task,), [3], [Report(30)], [2.0])
    assert view.buffered == 0 and view.update_counts.tolist() == [0, 1] and view.staleness_sums.tolist() == [0, 3]


def test_the_mean_staleness_of_all_of_the_past() -> None:
    ledger, view = new(2, window=2)
    for staleness in (5, 0, 1):
        contribute(ledger, 0, staleness)
    contribute(ledger, 1, 4)
    assert view.mean_staleness(ids(0, 1, 0)).tolist() == [2.0, 4.0, 2.0]


def test_the_oldest_sample_leaves_the_window_first() -> None:
    ledger, view = new(1, window=2)
    means = []
    for staleness in (8, 2, 4, 1):
        contribute(ledger, 0, staleness)
        means.append(view.mean_staleness(ids(0), window=2).item())
    assert means == [8.0, 5.0, 3.0, 2.5]


def test_a_shorter_window_than_the_ledger_keeps_reads_the_newest_samples() -> None:
    ledger, view = new(1, window=3)
    for staleness in (8, 2, 4, 1, 6):
        contribute(ledger, 0, staleness)
    assert [view.mean_staleness(ids(0), window=window).item() for window in (1, 2, 3)] == [6.0, 3.5, 11 / 3]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(1, 6), st.integers(0, 3))
def test_every_window_is_the_plain_mean_of_the_last_samples(history: list[int], window: int, more: int) -> None:
    ledger, view = new(1, window=window + more)
    for staleness in history:
        contribute(ledger, 0, staleness)
    last = history[-window:]
    assert view.mean_staleness(ids(0), window=window).item() == sum(last) / len(last)
    assert view.mean_staleness(ids(0)).item() == sum(history) / len(history)


def test_the_gap_of_a_first_update_is_the_count_so_far_and_later_ones_average() -> None:
    ledger, view = new(3)
    gaps = []
    for client in (0, 0, 1, 0, 1, 2):
        contribute(ledger, client, 0)
        gaps.append(view.mean_gap(ids(client)).item())
    # 0 at 1, 2, 4: gaps 1, 1, 2; 1 at 3, 5: gaps 3, 2; 2 at 6.
    assert gaps == [1.0, 1.0, 3.0, 4 / 3, 2.5, 6.0]


def test_the_interval_is_counted_from_the_first_task() -> None:
    ledger, view = new(2)
    contribute(ledger, 1, 0, start=2.0, end=5.0)
    assert view.mean_interval(ids(1)).item() == 3.0
    contribute(ledger, 1, 0, start=7.0, end=8.0)
    assert view.mean_interval(ids(1)).item() == 3.0
    contribute(ledger, 1, 0, start=8.0, end=17.0)
    assert view.mean_interval(ids(1)).item() == 5.0


def test_the_mean_duration_is_of_the_tasks_alone() -> None:
    ledger, view = new(2)
    contribute(ledger, 1, 0, start=2.0, end=5.0)
    contribute(ledger, 1, 0, start=7.0, end=8.0)
    assert np.isnan(view.mean_duration(ids(0))) and view.mean_duration(ids(1)) == 2.0


def test_a_buffered_update_does_not_change_the_mean_duration_of_the_merged() -> None:
    ledger, view = new(1)
    ledger.time = 0.0
    task = ledger.dispatch(0, 0, 0)
    ledger.time = 3.0
    ledger.admit(task, Report())
    assert np.isnan(view.mean_duration(ids(0)))
    ledger.merge()
    assert view.mean_duration(ids(0)) == 3.0


def test_weights_add_up_in_the_account_of_each_client() -> None:
    ledger, view = new(3)
    ledger.credit(ids(2, 0, 2), np.array([0.5, 0.25, 1.0]))
    ledger.credit(ids(2), np.array([0.125]))
    assert view.weight_sums.tolist() == [0.25, 0.0, 1.625]


def test_accounts_are_up_to_date_however_many_credits_there_were() -> None:
    ledger, view = new(2)
    for count in range(1, 3001):
        ledger.credit(ids(0, 1), np.array([1.0, 0.5]))
        if count in (1, 2, 999, 1024, 3000):
            assert view.weight_sums.tolist() == [count, count / 2]


def test_a_renewal_counts_the_version_and_notes_the_time() -> None:
    ledger, view = new(1)
    ledger.time = 4.0
    ledger.renew()
    assert (view.version, view.renewed, view.time) == (1, 4.0, 4.0)


def test_rows_grow_with_the_clients_and_keep_what_they_hold() -> None:
    ledger, view = new(1, window=2)
    contribute(ledger, 0, 3, start=1.0, end=2.0)
    ledger.join(1000)
    assert view.n == 2 and view.update_counts.shape == (1001,)
    contribute(ledger, 1000, 5)
    contribute(ledger, 0, 1, start=2.0, end=4.0)
    assert view.mean_staleness(ids(0, 1000)).tolist() == [2.0, 5.0]
    assert view.mean_staleness(ids(0, 1000), window=2).tolist() == [2.0, 5.0]
    assert view.mean_gap(ids(0, 1000)).tolist() == [1.5, 2.0]
    assert view.update_counts[[0, 1, 999, 1000]].tolist() == [2, 0, 0, 1]


TOUCHED = (
    {"task", "present", "dispatched", "contributed", "examples", "since", "arrival", "loss"},
    {"updates", "staleness", "position", "mean", "weight", "busy", "part"},
)


@pytest.mark.parametrize("clients", [1, 3, 1000])
@pytest.mark.parametrize("names", TOUCHED, ids=["coming, dispatched, sent", "merged"])
def test_what_is_needed_together_comes_with_one_fetch_from_memory(clients: int, names: set[str]) -> None:
    ledger, _ = new(clients)
    columns = ledger.integers | ledger.reals
    assert set(columns) == set.union(*TOUCHED)
    for client in {0, clients // 2, clients - 1}:
        first, *others = (columns[name][client:].ctypes.data for name in names)
        assert {address // 64 for address in others} == {first // 64}, "64 bytes are what a processor fetches"
        assert len({first, *others}) == len(names)


def test_a_saved_ledger_has_whole_columns_of_its_own() -> None:
    ledger, view = new(3)
    contribute(ledger, 1, 2)
    columns = ledger.state()["columns"]
    assert isinstance(columns, dict) and {name for name in columns} == set.union(*TOUCHED)
    for name, column in columns.items():
        assert isinstance(column, np.ndarray) and column.flags.c_contiguous and column.shape == (3,)
        assert column.dtype == (np.int64 if name in ledger.integers else np.float64)
        assert not np.shares_memory(column, (ledger.integers | ledger.reals)[name])
    other = Ledger(clients=1)
    other.restore(ledger.state())
    assert View(other).staleness_sums.tolist() == view.staleness_sums.tolist() == [0, 2, 0]


def test_who_is_there_does_not_come_again() -> None:
    ledger, view = new(2)
    assert not ledger.join(1) and (view.n, view.present) == (2, 2)
    ledger.leave(1)
    assert view.present == 1 and ledger.join(1) and (view.n, view.present) == (2, 2)


@pytest.mark.parametrize("column", ["update_counts", "staleness_sums", "weight_sums", "examples"])
def test_a_view_cannot_be_written(column: str) -> None:
    _, view = new(2)
    with pytest.raises(ValueError, match="read-only"):
        getattr(view, column)[0] = 1
    with pytest.raises(AttributeError):
        setattr(view, column, None)


@pytest.mark.parametrize("fact", ["time", "version", "renewed", "n", "running", "buffered", "woke"])
def test_the_present_moment_cannot_be_written(fact: str) -> None:
    _, view = new(2)
    with pytest.raises(AttributeError):
        setattr(view, fact, 1)


def profiled(clients: int) -> Ledger:
    ledger = Ledger(clients=clients, profiles=True)
    for client in range(clients):
        ledger.join(client)
    return ledger


def trains(ledger: Ledger, number: int, client: int, until: float) -> None:
    """The task of that number is dispatched now, and its update comes in at that time."""
    task = ledger.dispatch(number, client, ledger.version)
    ledger.time = until
    del ledger.running[number]
    ledger.admit(task, Report())


def test_the_slowest_is_the_running_client_whose_tasks_usually_take_longest() -> None:
    ledger = profiled(3)
    assert ledger.slowest() == 0.0
    for client, until in ((0, 2.0), (1, 8.0), (2, 9.0)):  # 2, 6 and 1 seconds
        trains(ledger, client, client, until)
    ledger.merge()
    assert ledger.slowest() == 0.0, "nobody is running"
    for client in range(3):
        ledger.dispatch(3 + client, client, 0)
    assert ledger.slowest() == 6.0
    del ledger.running[4]
    assert ledger.slowest() == 2.0
    del ledger.running[3]
    assert ledger.slowest() == 1.0


def test_what_a_merge_tells_of_a_client_that_has_gone_on_counts_at_once() -> None:
    ledger = profiled(2)
    trains(ledger, 0, 0, 4.0)
    ledger.dispatch(1, 0, 0)  # before anything is known of it
    assert ledger.slowest() == 0.0
    ledger.merge()
    assert ledger.slowest() == 4.0
    del ledger.running[1]
    trains(ledger, 2, 0, 6.0)
    ledger.dispatch(3, 0, 0)
    assert ledger.slowest() == 4.0
    ledger.merge()  # a task of 2 seconds: the mean is lower now
    assert ledger.slowest() == 3.0


def test_the_sum_of_rates_is_that_of_all_clients_heard_of() -> None:
    ledger = profiled(3)
    trains(ledger, 0, 0, 4.0)
    trains(ledger, 1, 1, 6.0)
    assert ledger.rate == 0.0
    ledger.merge()
    assert ledger.rate == 1 / 4 + 1 / 2
    trains(ledger, 2, 0, 14.0)
    ledger.merge()
    assert ledger.rate == pytest.approx(1 / 6 + 1 / 2, rel=1e-12)


@pytest.mark.parametrize("asks", [False, True])
def test_profiles_of_a_long_life_need_no_more_memory(asks: bool) -> None:
    ledger = profiled(3)
    trains(ledger, 0, 0, 50.0)
    ledger.merge()
    ledger.dispatch(1, 0, 0)  # the slowest runs all the time
    for number in range(2, 2000):
        trains(ledger, number, 1 + number % 2, ledger.time + 1.0)
        ledger.merge()
        assert not asks or ledger.slowest() == 50.0
    assert len(ledger._slowest.heap) <= 2 * 2 + 17
