"""The section on privacy: who has paid what, whose budget is spent, how many hide each other; and its figure."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from fairlag.analyse.effective import EffectiveSizes
from fairlag.analyse.spending import Private, Spending, private
from fairlag.lab.privacy import Privacy
from fairlag.lab.run import Run
from fairlag.report.page.build import runs_page
from fairlag.report.page.privacy import privacy_sections
from fairlag.report.page.shell import html
from fairlag.report.page.spec import Named, Section
from tests.support.browser import PHONE, WIDE, chromium, visiting
from tests.support.command import Call
from tests.support.page import HOSTILE, checked, named, values
from tests.support.runs import NOISE, noisy

ONE = Named("FedAvg", 0)
SIZES = EffectiveSizes(np.array([1, 2, 3]), np.array([2, 2, 2]), np.array([2.0, np.nan, 1.5]))


def paid(budget: float | None = 2.0, groups: tuple[str, ...] = ("fast", "slow")) -> Spending:
    return Spending(
        groups=groups,
        clients=np.arange(3),
        group_of=np.array([0, 0, 1]),
        duration=np.array([1.0, 1.5, np.nan]),
        delta=1e-5,
        budget=budget,
        versions=np.array([1, 2]),
        epsilon=np.array([[0.5, 1.0, 0.0], [1.0, 1.9, 0.0]]),
        stopped=np.array([False, budget is not None, False]),
    )


def section(found: Private) -> Section:
    (made,) = privacy_sections([(ONE, found), (Named("plain", 1), None)], "virtual time")
    checked(made)
    return made


def test_who_has_paid_what_and_whose_budget_is_spent() -> None:
    made = section(Private(Privacy(clip=1, noise=1, delta=1e-5, budget=2), SIZES, paid()))
    over, speed, sizes = made.charts
    view = over.views["s0"]
    assert values(named(view)["fast"]["y"]) == [0.75, 1.45] and values(named(view)["slow"]["y"]) == [0.0, 0.0]
    assert named(view)["budget"]["y"] == [2.0, 2.0]
    assert view.words == "The budget is spent for 1 of 2 clients of fast, 0 of 1 clients of slow."
    assert over.table is not None
    assert over.table.rows[0] == ["FedAvg, fast", "2", "1.45", "1", "1.9", "1"]
    marks = named(speed.views["s0"])["fast"]
    assert values(marks["x"]) == [1.0, 1.5] and marks["marker"]["symbol"] == ["circle", "circle-open"]
    assert speed.views["s0"].words == "1 client has no merged update yet, and has paid nothing."
    assert values(named(sizes.views[""])["FedAvg"]["y"]) == [2.0, 1.5]
    assert sizes.table is not None and sizes.table.rows == [["FedAvg", "2", "1.75", "1.5"]]


def test_without_a_budget_none_is_drawn() -> None:
    made = section(Private(Privacy(clip=1, noise=1, delta=1e-5), SIZES, paid(None)))
    assert "budget" not in named(made.charts[0].views["s0"])
    assert made.charts[0].views["s0"].words == "" and "udget" not in made.charts[0].reading
    assert made.charts[0].table is not None and made.charts[0].table.rows[0][-1] == "–"


def test_masks_without_noise_have_sizes_alone() -> None:
    made = section(Private(Privacy(secure=True, bound=0.5), SIZES, None))
    assert [chart.name for chart in made.charts] == ["privacy-sizes"]
    assert made.lead == "The server sees only weighted sums of updates, never a single one."


def test_what_is_not_known_is_said() -> None:
    none = EffectiveSizes(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    made = section(Private(Privacy(clip=1, noise=1, delta=1e-5), none, None, "computing ε needs a library"))
    assert not made.charts and made.remarks[-1] == "What clients have paid is not shown: computing ε needs a library."
    assert privacy_sections([(ONE, None)], "virtual time") == []


def test_names_are_shown_exactly() -> None:
    for hostile in HOSTILE:
        section(Private(Privacy(clip=1, noise=1, delta=1e-5, budget=2), SIZES, paid(groups=(hostile, "slow"))))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return noisy(tmp_path_factory.mktemp("noisy") / "runs", privacy={**NOISE, "budget": 6.0}, aggregations=60)


def test_a_page_has_the_section_only_if_there_is_noise(run: Run, tmp_path: Path) -> None:
    names = [each.name for each in runs_page([run]).sections]
    assert names.index("privacy") == names.index("weights") + 1
    plain = noisy(tmp_path / "plain", privacy=None, aggregations=5)
    assert "privacy" not in [each.name for each in runs_page([plain]).sections]
    found = private(run)
    assert found is not None
    section(found)


@pytest.mark.parametrize("size", ["single", "double"])
def test_the_figure_is_drawn(run: Run, call: Call, tmp_path: Path, size: str) -> None:
    file = tmp_path / "privacy.svg"
    assert call("figure", str(run.folder), "--kind", "privacy", "--size", size, "--out", str(file)).code == 0
    drawn = file.read_text("utf-8")
    assert all(f">{word}<" in drawn for word in ("fast", "slow", "budget", "aggregations", "ε"))


def test_there_is_no_figure_without_noise(call: Call, tmp_path: Path) -> None:
    plain = noisy(tmp_path / "plain", privacy=None, aggregations=5)
    done = call("figure", str(plain.folder), "--kind", "privacy", "--out", str(tmp_path / "x.svg"))
    assert done.code == 2
    assert "has no ε to draw: it has no version yet, or no noise in [privacy]" in done.err


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (PHONE, "dark")])
def test_a_browser_draws_it(run: Run, browser: Browser, tmp_path: Path, size: tuple[int, int], scheme: str) -> None:
    (tmp_path / "report.html").write_text(html(runs_page([run])), "utf-8")
    with visiting(browser, (tmp_path / "report.html").as_uri(), size, scheme) as visit:
        for chart in ("privacy-paid", "privacy-speed", "privacy-sizes"):
            visit.page.locator(f"#chart-{chart}").scroll_into_view_if_needed()
            assert visit.page.locator(f"#chart-{chart} .plot .trace, #chart-{chart} .plot .points").count() > 0
        wide = visit.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= size[0]
