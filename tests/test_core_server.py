"""The server by hand: freshness, partial aggregation, refusals that harm nobody, stops, and broken contracts."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fairlag import zoo
from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import (
    NOTHING,
    Arrived,
    Cancel,
    Dispatch,
    Ended,
    Failed,
    Joined,
    Left,
    Outcome,
    Presence,
    Report,
    Stop,
    Update,
    Wake,
    Woke,
)
from fairlag.core.vector import EMPTY, Layout, Vector
from fairlag.errors import InputError, ProtocolError
from fairlag.rules import select, trigger, weigh
from fairlag.rules.apply import Apply
from tests.support.helpers import Scene, cancelled, handed, vec

TWO = zoo.buffered_fedavg(buffer=2)
THREE = zoo.buffered_fedavg(buffer=3)


def test_a_client_that_trained_from_the_newest_version_waits_for_a_newer_one() -> None:
    scene = Scene(TWO, 3)
    assert handed(scene.first) == [(0, 0), (1, 0), (2, 0)]
    assert scene.arrive(0) == []
    assert handed(scene.arrive(1)) == [(0, 1), (1, 1)]


def test_a_client_that_trained_from_an_older_version_is_handed_the_newest_at_once() -> None:
    scene = Scene(TWO, 3)
    scene.arrive(0)
    scene.arrive(1)
    assert handed(scene.arrive(2)) == [(2, 1)]
    assert scene.server.counts["buffered"] == 1


def test_without_fresh_a_client_retrains_the_same_version_at_once() -> None:
    scene = Scene(zoo.buffered_fedavg(buffer=2, fresh=False), 3)
    assert handed(scene.arrive(0)) == [(0, 0)]
    assert handed(scene.arrive(0)) == [(0, 1)]
    assert [task.client for task in scene.merged[0].tasks] == [0, 0]


def test_a_refused_client_may_retry_the_same_version() -> None:
    scene = Scene(TWO, 3, parameters=vec(0, 0))
    assert handed(scene.arrive(0, 1, np.nan)) == [(0, 0)]
    assert scene.tasks[0].ordinal == 1


def test_a_failed_client_may_retry_the_same_version() -> None:
    scene = Scene(TWO, 3)
    assert handed(scene.fail(0)) == [(0, 0)]
    assert [ended[1:] for ended in scene.ended] == [(1.0, Outcome.LOST, "out of memory")]


def test_a_client_that_comes_back_with_its_update_in_the_buffer_keeps_waiting() -> None:
    scene = Scene(THREE, 4)
    scene.arrive(0)
    assert scene.leave(0) == []
    assert scene.join(0) == []
    scene.arrive(1)
    assert handed(scene.arrive(2)) == [(0, 1), (1, 1), (2, 1)]


def test_a_client_that_comes_back_after_a_new_version_is_handed_it() -> None:
    scene = Scene(TWO, 3)
    scene.arrive(0)
    scene.leave(0)
    assert handed(scene.arrive(1)) == [(1, 1)], "nothing is given to the absent"
    assert handed(scene.join(0)) == [(0, 1)]
    assert scene.tasks[0].ordinal == 1


def test_history_survives_absence() -> None:
    scene = Scene(zoo.fedstaleweight(buffer=1), 2)
    for _ in range(4):
        scene.arrive(0)
    scene.arrive(1)
    scene.leave(1)
    scene.join(1)
    clients = np.array([0, 1])
    assert scene.server.view.mean_staleness(clients).tolist() == [0.0, 4.0]
    scene.arrive(1)  # lost the task from version 5, was handed 5 again, on time
    assert scene.server.view.mean_staleness(clients).tolist() == [0.0, 2.0]
    assert scene.server.view.update_counts.tolist() == [4, 2] and scene.tasks[1].ordinal == 3


def test_the_task_of_a_client_that_leaves_is_lost_and_cancelled() -> None:
    scene = Scene(TWO, 3)
    assert scene.leave(1) == [Cancel(1)]
    assert scene.ended == [Ended(Dispatch(1, 1, 0, 0, 0.0), 1.0, Outcome.LOST, "its client left")]
    assert scene.server.counts["lost"] == 1 and scene.server.counts["running"] == 2


def test_where_everyone_would_wait_for_ever_what_is_there_is_merged() -> None:
    scene = Scene(THREE, 3, parameters=vec(0, 0))
    scene.arrive(0, 2, 0)
    scene.arrive(1, 0, 2)
    assert not scene.merged
    commands = scene.leave(2)
    assert cancelled(commands) == [2] and handed(commands) == [(0, 1), (1, 1)]
    assert [record.partial for record in scene.merged] == [True] and scene.server.partial == 1
    assert scene.weights == [[0.5, 0.5]] and scene.parameters == [1.0, 1.0]


def test_a_full_buffer_is_not_partial() -> None:
    scene = Scene(THREE, 3)
    for client in range(3):
        scene.arrive(client)
    assert [record.partial for record in scene.merged] == [False] and scene.server.partial == 0


def test_the_last_client_to_stay_makes_versions_alone() -> None:
    scene = Scene(THREE, 3)
    scene.leave(1)
    scene.leave(2)
    assert handed(scene.arrive(0)) == [(0, 1)] and scene.server.partial == 1
    assert handed(scene.arrive(0)) == [(0, 2)] and scene.server.partial == 2


def test_nothing_is_merged_while_nobody_is_there_and_a_returning_client_resumes() -> None:
    scene = Scene(TWO, 2)
    scene.arrive(0)
    scene.leave(0)
    scene.leave(1)
    assert not scene.merged and scene.server.counts["buffered"] == 1
    assert handed(scene.join(0)) == [(0, 1)] and scene.server.partial == 1


def test_a_pending_wake_forbids_a_partial_aggregation() -> None:
    scene = Scene(Strategy(select.all_idle(), trigger.every(10.0), weigh.uniform), 2)
    scene.arrive(0)
    scene.arrive(1)
    assert not scene.merged
    commands = scene.wake(10.0)
    assert handed(commands) == [(0, 1), (1, 1)] and [record.partial for record in scene.merged] == [False]


def test_a_wake_that_is_due_at_this_very_moment_is_still_pending() -> None:
    scene = Scene(Strategy(select.all_idle(), trigger.every(10.0), weigh.uniform), 1)
    scene.arrive(0, at=10.0)
    scene.wake(10.0)
    assert [(record.time, record.partial) for record in scene.merged] == [(10.0, False)]


def refused(scene: Scene, task: Any, update: Update, reason: str) -> None:
    """That update is refused for that reason, counted once, changes no model, and training goes on."""
    before, version = dict(scene.server.counts), scene.server.view.version
    parameters = scene.server.versions.newest.tobytes()
    known = task in [each.task for each in scene.tasks.values()]
    commands = scene.send(Arrived(scene.time + 1, task, update))
    assert scene.server.refusals == {reason: 1}
    assert scene.server.counts["refused"] == before["refused"] + known
    assert scene.server.counts["buffered"] == before["buffered"] and scene.server.view.version == version
    assert scene.server.versions.newest.tobytes() == parameters
    assert len(handed(commands)) == known
    for client in (1, 2):
        scene.arrive(client, 1, 1)
    assert scene.server.view.version == version + 1 and scene.parameters == [1.0, 1.0]


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (Update(vec(1, 2, 3)), "the shape is not (2,)"),
        (Update(np.zeros(2)), "the dtype is not float32"),  # type: ignore[arg-type]
        (Update(vec(1, np.nan)), "not finite"),
        (Update(vec(np.inf, -np.inf)), "not finite"),
        (Update(vec(1, 2), Report(0)), "the number of examples is not an int between 1 and 9007199254740992"),
    ],
)
def test_a_malformed_update_is_refused_with_a_reason(update: Update, reason: str) -> None:
    scene = Scene(TWO, 3, parameters=vec(0, 0))
    refused(scene, 0, update, reason)
    assert [(ended.task.task, ended.outcome, ended.reason) for ended in scene.ended] == [(0, Outcome.REFUSED, reason)]


@pytest.mark.parametrize("examples", [2**63, 10**400, -(10**5000)], ids=["word", "float", "digits"])
def test_an_absurd_number_of_examples_harms_nobody(examples: int) -> None:
    scene = Scene(TWO, 3, parameters=vec(0, 0))
    scene.send(Arrived(1.0, 0, Update(vec(1, 1), Report(examples))))
    assert scene.server.counts["refused"] == 1 and scene.server.counts["buffered"] == 0


def test_values_whose_sum_would_overflow_are_accepted() -> None:
    scene = Scene(TWO, 2, parameters=vec(0, 0))
    scene.arrive(0, 3e38, 3e38)
    scene.arrive(1, -3e38, 3e38)
    assert not scene.server.refusals and scene.parameters == pytest.approx([0.0, 3e38])


@pytest.mark.parametrize("task", [3, -1, -(2**70), 2**70, 0.5, float("nan"), "0", None, (0,), [0]])
def test_an_unknown_task_is_refused(task: object) -> None:
    refused(Scene(TWO, 3, parameters=vec(0, 0)), task, Update(vec(9, 9)), "unknown task")


def test_a_replay_is_refused() -> None:
    scene = Scene(THREE, 3, parameters=vec(0, 0))
    scene.arrive(0, 1, 1)
    assert scene.send(Arrived(2.0, 0, Update(vec(9, 9)))) == []
    assert scene.server.refusals == {"replay of a task that has ended": 1}
    scene.arrive(1, 1, 1)
    scene.arrive(2, 1, 1)
    assert scene.send(Arrived(9.0, 0, Update(vec(9, 9)))) == [], "also after the version is made"
    assert scene.server.refusals.total() == 2 and scene.parameters == [1.0, 1.0] and not scene.ended


def test_an_update_of_a_client_that_left_is_a_replay() -> None:
    scene = Scene(TWO, 3)
    scene.leave(0)
    assert scene.send(Arrived(2.0, 0, NOTHING)) == []
    assert scene.server.refusals == {"replay of a task that has ended": 1}


def test_a_failure_of_an_unknown_task_changes_nothing() -> None:
    scene = Scene(TWO, 3)
    before = scene.server.counts
    assert scene.send(Failed(1.0, 77, "odd")) == [] and scene.server.counts == before and not scene.ended


def test_a_failure_may_take_its_client_along() -> None:
    scene = Scene(TWO, 3)
    assert scene.send(Failed(1.0, 0, "its node went offline", gone=True)) == []
    assert scene.server.view.present == 2 and scene.server.counts["lost"] == 1
    assert [(row.outcome, row.reason) for row in scene.ended] == [(Outcome.LOST, "its node went offline")]
    assert handed(scene.join(0)) == [(0, 0)], "it is known again, and given something"


def test_what_came_and_was_no_update_is_refused_and_counted() -> None:
    scene = Scene(TWO, 3)
    assert handed(scene.send(Failed(1.0, 0, "not an array", refused=True))) == [(0, 0)]
    assert scene.server.refusals == {"not an array": 1} and scene.server.counts["refused"] == 1
    scene.send(Failed(2.0, scene.tasks[0].task, "not an array", gone=True, refused=True))
    assert scene.server.refusals == {"not an array": 2} and scene.server.view.present == 2


def test_nothing_that_a_client_sends_says_a_version() -> None:
    assert Update._fields == ("delta", "report") and Report._fields == ("examples", "steps", "effort", "loss")
    assert Arrived._fields == ("time", "task", "update")


def test_an_update_that_its_sender_changes_afterwards_is_not_changed() -> None:
    scene = Scene(TWO, 2, parameters=vec(0, 0))
    delta = vec(2, 4)
    scene.send(Arrived(1.0, 0, Update(delta)))
    delta[:] = 1000
    scene.arrive(1, 0, 0)
    assert scene.parameters == [1.0, 2.0]


def test_the_first_parameters_are_a_copy_and_every_version_is_read_only() -> None:
    first = vec(1, 2)
    scene = Scene(zoo.buffered_fedavg(buffer=1), 2, parameters=first)
    first[:] = 1000
    scene.arrive(0, 1, 1)
    assert scene.server.versions[0].tolist() == [1, 2] and scene.server.versions[1].tolist() == [2, 3]
    for version in (0, 1):
        with pytest.raises(ValueError, match="read-only"):
            scene.server.versions[version][0] = 9


def test_each_new_version_is_given_to_whoever_asked_for_it() -> None:
    given: list[tuple[int, float, list[float]]] = []

    def note(version: int, time: float, parameters: Vector) -> None:
        given.append((version, time, parameters.tolist()))

    server = Server(zoo.buffered_fedavg(buffer=1), clients=1, parameters=vec(1, 2), on_version=note)
    server.handle(Joined(0.0, [0]))
    for task in (0, 1):
        server.handle(Arrived(task + 0.5, task, Update(vec(1, 1), Report(5, 1, 1.0))))
    assert given == [(1, 0.5, [2, 3]), (2, 1.5, [3, 4])]


def seen_by_the_rule(parameters: Vector, layout: Layout | None) -> Layout:
    seen: list[Layout] = []

    def init(first: Vector, parts: Layout) -> tuple[object, ...]:
        assert first.tolist() == parameters.tolist()
        seen.append(parts)
        return ()

    rule = Apply("notes", init, lambda step, state, parameters: (step, state))
    Server(replace(TWO, apply=rule), clients=2, parameters=parameters, layout=layout)
    (only,) = seen
    return only


def test_a_server_rule_is_told_the_parts_of_the_parameters() -> None:
    layout = Layout(("weight", "bias"), ((2, 1), (1,)))
    assert seen_by_the_rule(vec(1, 2, 3), layout) == layout
    assert seen_by_the_rule(vec(1, 2, 3), None) == Layout(("parameters",), ((3,),))
    assert seen_by_the_rule(EMPTY, Layout((), ())) == Layout((), ())
    assert seen_by_the_rule(EMPTY, None) == Layout(("parameters",), ((0,),))


@pytest.mark.parametrize("size", [1, 3])
def test_a_layout_of_another_model_is_refused(size: int) -> None:
    with pytest.raises(InputError, match=f"the layout is one of {size} numbers, there are 2 parameters"):
        Server(TWO, clients=2, parameters=vec(1, 2), layout=Layout(("weight",), ((size,),)))


def test_the_run_stops_after_its_last_aggregation() -> None:
    scene = Scene(TWO, 2, aggregations=1)
    scene.arrive(0)
    assert scene.arrive(1) == [Stop("1 aggregations were made")]
    assert scene.arrive(1) == [] and scene.join(5) == [] and scene.server.counts["dispatched"] == 2


def test_the_run_stops_at_its_time() -> None:
    scene = Scene(TWO, 2, until_time=5.0)
    assert [command for command in scene.first if isinstance(command, Wake)] == [Wake(5.0)]
    scene.arrive(0)
    assert scene.wake(5.0) == [Stop("time 5.0 was reached")]
    assert scene.server.stopped == Stop("time 5.0 was reached") and scene.arrive(1) == []


@pytest.mark.parametrize("time", [0.5, float("nan")])
def test_time_does_not_run_backwards(time: float) -> None:
    scene = Scene(TWO, 2)
    scene.arrive(0, at=1.0)
    with pytest.raises(ProtocolError, match="time runs backwards"):
        scene.send(Woke(time))


def test_a_client_joins_once_and_leaves_once() -> None:
    server = Server(TWO, clients=2)
    server.handle(Joined(0.0, [0, 1]))
    with pytest.raises(ProtocolError, match=r"client 1 joined at time 1\.0 but is already there"):
        server.handle(Joined(1.0, [1]))
    server.handle(Left(2.0, 1))
    for client in (1, 7):
        with pytest.raises(ProtocolError, match=f"client {client} left at time 3.0 but was not there"):
            server.handle(Left(3.0, client))


# Who comes and goes


def test_whoever_comes_or_goes_is_recorded_with_the_newest_version_then() -> None:
    scene = Scene(TWO, 3)
    scene.arrive(0)
    scene.arrive(1)
    scene.leave(1)
    scene.send(Failed(4.0, scene.tasks[0].task, "crashed", gone=True))
    scene.send(Failed(4.0, scene.tasks[2].task, "out of memory"))
    scene.join(at=5.0)
    scene.join(0, 1, at=6.0)
    assert [row for row in scene.records if isinstance(row, Presence)] == [
        Presence(0.0, 0, (0, 1, 2), True),
        Presence(3.0, 1, (1,), False),
        Presence(4.0, 1, (0,), False),
        Presence(6.0, 1, (0, 1), True),
    ]


def test_whoever_went_is_not_there_for_the_version_that_follows_from_it() -> None:
    """Nobody is running any more, so that one update is merged alone."""
    scene = Scene(TWO, 2)
    scene.arrive(0)
    scene.leave(1)
    kinds = [type(row).__name__ for row in scene.records]
    assert kinds == ["Presence", "Presence", "Ended", "Aggregation"]
