"""What a strategy would mean for a deployed fleet, on timelines that can be counted by hand, and the answer."""

import math
from dataclasses import replace
from io import StringIO
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from fairlag.analyse.audit import StrategyAudit, audit
from fairlag.analyse.deployment import settled
from fairlag.lab.experiment import Experiment, parse
from fairlag.report.answer import answer
from fairlag.report.page.build import audit_page
from fairlag.report.tables import audit_table
from tests.support.experiments import PAPER


def experiment(*uses: dict[str, Any], clients: list[dict[str, Any]] | None = None, **more: Any) -> Experiment:
    groups = clients or [{"group": "fast", "count": 2, "delay": 1}, {"group": "slow", "count": 1, "delay": 4}]
    return parse({"name": "counted", "clients": groups, "strategies": list(uses), **more})


def audited(*uses: dict[str, Any], seeds: int = 1, **more: Any) -> list[StrategyAudit]:
    return audit(experiment(*uses, **more), seeds=seeds, incentive_updates=1)


def test_speed_work_and_traffic_of_clients_that_never_wait() -> None:
    (found,) = audited({"use": "buffered_fedavg", "buffer": 1}, until_time=3600.0, model_bytes=2_000_000)
    deployed = found.deployment
    assert deployed.versions_per_hour == pytest.approx(3600 * 2.25)
    assert deployed.updates_per_day == pytest.approx(86400 * 2.25 / 3)
    assert deployed.megabytes_per_day == pytest.approx(4 * 86400 * 2.25 / 3)
    fast, slow = (group.deployment for group in found.groups)
    assert (fast.updates_per_day, slow.updates_per_day) == (86400.0, 86400.0 / 4)
    assert (fast.megabytes_per_day, slow.megabytes_per_day) == (4 * 86400.0, 86400.0)
    assert deployed.lost == 0
    assert deployed.waiting == pytest.approx(0.0, abs=1e-9)


def test_without_a_size_of_the_model_there_are_no_megabytes() -> None:
    (found,) = audited({"use": "buffered_fedavg", "buffer": 1}, aggregations=20)
    assert found.deployment.megabytes_per_day is None
    assert found.as_json()["megabytes_per_day"] is None


def test_fast_clients_wait_for_the_slowest_of_a_round() -> None:
    (found,) = audited({"use": "fedavg", "cohort": 3}, until_time=400.0)
    assert found.deployment.versions_per_hour == 900.0
    assert found.deployment.waiting == pytest.approx(1 - (4 + 1 + 1) / 12)


def test_work_that_is_called_off_is_lost() -> None:
    (found,) = audited({"use": "fedavg", "cohort": 3, "deadline": 2.0}, until_time=400.0, model_bytes=1_000_000)
    assert found.deployment.lost == pytest.approx(1 / 3)
    assert found.cancelled == pytest.approx(200, abs=1)
    slow = found.groups[1].deployment
    assert slow.updates_per_day == 0
    assert slow.megabytes_per_day == pytest.approx(43_200, rel=0.01)  # downloads alone
    # Of 2 s each, the fast ones work 1 s and the slow one 2 s, for nothing.
    assert found.deployment.waiting == pytest.approx(1 - 4 / 6, abs=0.01)


def test_time_away_is_no_waiting() -> None:
    clients = [{"group": "all", "count": 50, "delay": "uniform(1, 2)", "availability": "alternating(100, 300)"}]
    (found,) = audited({"use": "buffered_fedavg", "buffer": 1, "fresh": False}, clients=clients, until_time=4000.0)
    assert found.deployment.waiting < 0.01  # three quarters, if clients counted as there all the time
    assert 0.005 < found.deployment.lost < 0.05


def test_influence_that_moves_until_the_end_has_not_settled() -> None:
    times = np.arange(1.0, 101.0)
    first = np.where(times <= 60, times, 60.0)
    rows = np.column_stack([times, first, first, first, times - first])
    assert settled([rows]) is None
    assert settled([rows[:1]]) is None


def test_a_strategy_that_learns_who_is_slow_settles_later_than_one_that_does_not() -> None:
    plain, learning = audited(
        {"use": "buffered_fedavg", "buffer": 5},
        {"use": "fedstaleweight", "buffer": 5},
        clients=PAPER,
        aggregations=2000,
    )
    assert plain.deployment.settled and learning.deployment.settled
    assert plain.deployment.settled < learning.deployment.settled


USES: tuple[dict[str, Any], ...] = (
    {"use": "buffered_fedavg", "buffer": 2, "label": "plain"},
    {"use": "fairshare", "buffer": 2, "cap": "none", "label": "even"},
    {"use": "fedavg", "cohort": 3, "label": "rounds"},
)


def test_the_answer_names_the_fairest_the_fastest_and_who_pays() -> None:
    found = audited(*USES, seeds=3, aggregations=300)
    sentences = answer(found)
    assert sentences[0] == "rounds and even are the fairest, and equally fair (Jain index 1.000)."
    assert (
        sentences[1] == "plain and even are the fastest, with 4,045 versions per hour; rounds is the slowest, with 900."
    )
    assert sentences[2].startswith("Under even, no group has clearly less")
    assert sentences[3].startswith(
        "Under plain, the group slow gets too little influence: 0.110 of all, while 0.333 would be fair."
    )
    assert sentences[-1].startswith("So choose even: none of these is fairer, and none is faster.")


def test_nobody_is_the_fairest_by_chance() -> None:
    """The same strategy twice, with other chance: what lies between them is noise."""
    first, second = audited(USES[0], {**USES[0], "label": "again"}, seeds=3, aggregations=30)
    noisy = replace(second, influences=second.influences + np.array([[0.02], [0.0], [0.0]]) * np.array([1, -1, 0]))
    assert answer([first, noisy])[0].startswith("All are equally fair")
    plain, even = audited(*USES[:2], seeds=1, aggregations=300)
    assert answer([plain, even])[0].endswith("With one seed, the effect of chance is not known.")


def test_one_strategy_alone_is_not_compared() -> None:
    (sentence,) = answer(audited(USES[0], aggregations=300))
    assert sentence.startswith("Under plain, the group slow gets too little")


def test_tables_and_page_say_it_within_eighty_columns() -> None:
    asked = experiment(*USES, aggregations=60, model_bytes=1_000_000)
    found = audit(asked, seeds=2, incentive_updates=1)
    console = Console(width=80, record=True, file=StringIO())
    console.print(audit_table(asked, found, 2))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "versions/h" in text and "So choose even" in text
    assert "throttling was not tried; --incentive-updates" in " ".join(text.split())
    page = audit_page(asked, found, 2)
    (section,) = (each for each in page.sections if each.name == "deployment")
    assert [row[0] for row in section.tables[0].rows][:3] == ["plain", "plain, fast", "plain, slow"]
    assert page.lead[1:] == answer(found)
    assert not any(math.isnan(float(row[2].replace(",", ""))) for row in section.tables[0].rows)
