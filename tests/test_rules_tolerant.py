"""SAFA's rounds: when they end, who goes on from which version, and what becomes of those that lose their tasks."""

import math

from fairlag import zoo
from tests.support.scenes import Scene, cancelled, handed, vec, wakes


def test_nobody_is_given_anything_in_the_middle_of_a_round() -> None:
    scene = Scene(zoo.safa(share=1.0), 3, parameters=vec(0))
    assert handed(scene.fail(2)) == [] and handed(scene.arrive(0, 1)) == []
    scene.leave(1)
    assert handed(scene.first) == [(0, 0), (1, 0), (2, 0)] and scene.server.view.version == 1


def test_a_client_that_failed_goes_on_from_the_version_it_had() -> None:
    scene = Scene(zoo.safa(share=1 / 3, lag=2), 3, parameters=vec(0))
    assert scene.fail(2) == []
    assert handed(scene.arrive(0, 3)) == [(2, 0), (0, 1)] and scene.parameters == [1]
    scene.arrive(2, 9)  # of version 0, so that the model is 9 and not 10
    assert scene.parameters == [4]


def test_a_client_that_left_and_came_back_goes_on_from_the_version_it_had() -> None:
    scene = Scene(zoo.safa(share=1 / 3, lag=2), 3, parameters=vec(0))
    assert cancelled(scene.leave(1)) == [1] and scene.join(1) == []
    assert handed(scene.arrive(0, 3)) == [(1, 0), (0, 1)]
    scene.leave(0)
    assert handed(scene.arrive(1, 3)) == [(1, 2)]
    assert scene.join(0) == []
    assert handed(scene.arrive(2, 3)) == [(0, 1), (2, 3)]
    assert scene.server.counts["cancelled"] == 0


def test_a_client_that_comes_back_too_late_begins_anew_and_counts_with_what_it_is_given() -> None:
    scene = Scene(zoo.safa(share=1 / 3, lag=1), 3, parameters=vec(0))
    scene.leave(1)
    scene.arrive(0, 3)  # 3, 0, 0
    scene.arrive(2, 6)  # 3, 0, 6: version 2 is 3
    assert scene.parameters == [3] and scene.join(1) == []
    assert handed(scene.arrive(0, 2)) == [(1, 3), (0, 3)]  # 3, 0, 6: client 0 went on from version 1
    assert scene.parameters == [3] and list(scene.server.view.restarted) == [1]
    scene.arrive(2, 3)  # 3, 3, 6, as client 2 went on from version 2
    assert scene.parameters == [4] and list(scene.server.view.restarted) == []


def test_who_left_after_its_update_is_given_the_newest_version() -> None:
    scene = Scene(zoo.safa(share=1.0, lag=5), 3, parameters=vec(0))
    scene.arrive(0, 3)
    scene.leave(0)
    assert scene.join(0) == [] and scene.arrive(1, 3) == []
    assert handed(scene.arrive(2, 3)) == [(0, 1), (1, 1), (2, 1)]


def test_a_round_ends_when_nobody_is_running_any_more() -> None:
    scene = Scene(zoo.safa(share=1.0), 2, parameters=vec(0))
    scene.arrive(0, 4)
    assert handed(scene.leave(1)) == [(0, 1)] and scene.parameters == [2]
    other = Scene(zoo.safa(share=0.5, lag=2), 2, parameters=vec(0))
    other.arrive(0, 4)
    assert other.arrive(0, 2) == []  # it was drafted last, so that it cannot fill the quota
    assert handed(other.fail(1)) == [(0, 2), (1, 0)] and other.parameters == [2]
    assert [record.partial for record in other.merged] == [False, False]


def test_a_round_in_which_all_lose_their_tasks_goes_on_with_new_ones() -> None:
    scene = Scene(zoo.safa(share=0.5, deadline=9.0), 2, parameters=vec(0))
    assert wakes(scene.first) == [9.0]
    assert scene.fail(1) == []
    commands = scene.fail(0)
    assert handed(commands) == [(1, 0), (0, 0)] and wakes(commands) == [] and scene.server.view.until == 9.0


def test_at_the_deadline_what_is_in_is_merged() -> None:
    scene = Scene(zoo.safa(share=1.0, lag=3, deadline=5.0), 2, parameters=vec(0))
    assert wakes(scene.first) == [5.0] and scene.arrive(0, 4, at=1.0) == []
    commands = scene.wake(5.0)
    assert handed(commands) == [(0, 1)] and wakes(commands) == [10.0] and scene.parameters == [2]
    assert scene.wake(10.0) == [] and scene.server.view.version == 1, "nothing is in"
    commands = scene.arrive(1, 6, at=12.0)  # the deadline is over: what comes first is merged
    assert handed(commands) == [(1, 2)] and wakes(commands) == [17.0] and scene.parameters == [5]


def test_at_the_deadline_those_drafted_last_fill_what_is_left_of_the_quota() -> None:
    scene = Scene(zoo.safa(share=0.5, lag=3, deadline=5.0), 4, parameters=vec(0))
    scene.arrive(0, 4, at=1.0)
    scene.arrive(1, 8, at=2.0)  # 4, 8, 0, 0
    for client, x in ((1, 1), (0, 9), (2, 4)):  # of versions 1, 1 and 0
        assert scene.arrive(client, x) == []
    scene.wake(7.0)  # 2 and then 1 are drafted: 4, 4, 4, 0; client 0 comes into the cache only then
    assert scene.parameters == [3]
    scene.arrive(3, 0, at=8.0)
    scene.arrive(0, 1, at=9.0)  # 4, 4, 4, 0, as its model is 3 + 1
    assert scene.parameters == [3]


def test_a_round_begins_though_everybody_is_still_at_work() -> None:
    scene = Scene(zoo.safa(share=1.0, lag=3, deadline=5.0), 3, parameters=vec(0))
    scene.arrive(0, 3, at=1.0)
    scene.leave(0, at=2.0)
    commands = scene.wake(5.0)
    assert scene.server.view.version == 1 and handed(commands) == [] and wakes(commands) == [10.0]
    assert scene.arrive(1, 3, at=6.0) == [] and scene.server.view.version == 1, "the new round has its own deadline"
    scene.wake(10.0)
    assert scene.server.view.version == 2


def test_whoever_becomes_known_in_the_middle_of_a_round_changes_the_next_ones_quota() -> None:
    scene = Scene(zoo.safa(share=0.5), 6, parameters=vec(0), join=False)
    scene.join(0, 1, at=0.0)
    assert scene.server.view.target == 1
    assert scene.join(2, 3, 4, 5) == []
    scene.arrive(0, 6)
    assert scene.parameters == [1] and scene.server.view.target == 3
    assert handed(list(scene.tasks.values())) == [(0, 1), (1, 0), (2, 1), (3, 1), (4, 1), (5, 1)]


def test_a_refused_update_changes_nothing_but_that_its_client_begins_again() -> None:
    scene = Scene(zoo.safa(share=0.5, lag=2), 2, parameters=vec(0))
    assert scene.arrive(0, math.nan) == []
    assert handed(scene.arrive(1, 4)) == [(0, 0), (1, 1)] and scene.parameters == [2]


def test_without_tolerance_everyone_who_is_late_begins_anew() -> None:
    scene = Scene(zoo.safa(share=0.5, lag=0), 2, parameters=vec(0))
    commands = scene.arrive(0, 4)
    assert cancelled(commands) == [1] and handed(commands) == [(0, 1), (1, 1)] and scene.parameters == [2]
    scene.arrive(1, 2)  # 4 and 2 + 2
    assert scene.parameters == [4]
    assert scene.server.versions.kept == (2,)


def test_however_small_the_share_somebody_is_drafted() -> None:
    scene = Scene(zoo.safa(share=1e-12), 2, parameters=vec(0, 0))
    scene.arrive(0, 4, 0)
    assert scene.parameters == [2, 0]  # at once, and not a round later
