"""A run of a million tasks: what the page reads of it takes seconds, and what it shows of it stays light."""

from pathlib import Path

import numpy as np
import pytest

from fairlag.analyse.outcomes import outcomes
from fairlag.analyse.timeline import timeline_if_any
from fairlag.analyse.weights import weights
from fairlag.lab.experiment import parse
from fairlag.lab.run import Run
from fairlag.lab.serialise import written
from fairlag.lab.store import Store
from fairlag.report.page.build import runs_page
from fairlag.report.page.losses import losses_section
from fairlag.report.page.shell import html
from fairlag.report.page.spec import Named, Section
from fairlag.report.page.timeline import BARS, timeline_section
from fairlag.report.page.weights import POINTS, weights_section
from tests.support.browser import chromium, visiting
from tests.support.edits import edited
from tests.support.page import checked, size

TASKS, CLIENTS, BUFFER = 1_000_000, 1_000, 10

_TASKS = f"""
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < {TASKS - 1})
INSERT INTO tasks SELECT n, n % {CLIENTS}, n / {2 * BUFFER}, n / {CLIENTS}, n / {CLIENTS}, 0, 1, n / {CLIENTS} + 1,
    CASE WHEN n % 50 = 7 THEN 'lost' ELSE 'aggregated' END, CASE WHEN n % 50 = 7 THEN NULL ELSE n / {BUFFER} + 1 END,
    CASE WHEN n % 50 = 7 THEN NULL ELSE n / {BUFFER} - n / {2 * BUFFER} END,
    CASE WHEN n % 50 = 7 THEN NULL ELSE 0.05 + 0.001 * (n % 100) END,
    CASE WHEN n % 50 = 7 THEN 'its client left' END FROM numbers
"""
_AGGREGATIONS = f"""
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {TASKS // BUFFER})
INSERT INTO aggregations SELECT n, (n - 1) * {BUFFER} / {CLIENTS} + 1, {BUFFER}, 1.0, 0, '' FROM numbers
"""


_EXPERIMENT: dict[str, object] = {
    "name": "big",
    "aggregations": TASKS // BUFFER,
    "clients": [
        {"group": "fast", "count": CLIENTS // 2, "delay": "constant(1)"},
        {"group": "slow", "count": CLIENTS // 2, "delay": "constant(1)"},
    ],
    "strategies": [{"use": "buffered_fedavg", "label": "Big", "buffer": BUFFER}],
}


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("big") / "run"
    meta = {"experiment": "big", "label": "Big", "seed": 0, "aggregations": TASKS // BUFFER}
    groups, one = ["fast", "slow"], np.ones(CLIENTS, np.int64)
    text = written(parse(_EXPERIMENT))
    Store.create(folder, meta, experiment=text, groups=groups, group_of=np.arange(CLIENTS) % 2, examples=one).close()
    with edited(folder) as database:
        database.execute(_TASKS)
        database.execute(_AGGREGATIONS)
    return Run(folder)


@pytest.mark.slow
def test_sections_of_a_million_tasks_are_light(big: Run) -> None:
    eight = [Named(f"S{place}", place) for place in range(8)]
    when = timeline_if_any(big, BARS.of_each(8))
    heavy, lost = weights(big, POINTS.of_each(8)), outcomes([big])
    assert when is not None
    assert (when.reach, len(when.bars), len(when.clients), when.every) == (37.0, 1_480, 40, 3)
    assert heavy.single is None
    assert (heavy.updates, heavy.binned.updates.sum(), len(heavy.binned.mean)) == (TASKS, 980_000, 400)
    assert lost.of().total() == TASKS
    sections: list[Section] = [
        timeline_section([(named, when) for named in eight]),
        weights_section([(named, heavy) for named in eight]),
        losses_section([(named, lost) for named in eight]),
    ]
    for section in sections:
        checked(section)
        assert size(section) < 1_200_000


@pytest.mark.slow
def test_the_page_of_a_million_tasks_is_light_and_opens(big: Run, tmp_path: Path) -> None:
    file = tmp_path / "big.html"
    file.write_text(html(runs_page([big])), "utf-8")
    assert file.stat().st_size < 15_000_000
    with chromium() as browser, visiting(browser, file.as_uri()) as visit:
        assert "1,000 clients" in visit.page.inner_text("#experiment")
        assert "of 1,000 clients" in visit.page.inner_text("#timeline")
