"""The report page in a real browser: sections, switches, zoom, keys, downloads, colours, narrow screens."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from fairlag.analyse.audit import audit
from fairlag.analyse.evidence import GroupStaleness, Influence
from fairlag.analyse.spread import Spread
from fairlag.lab.experiment import load, parse
from fairlag.lab.plan import Plan
from fairlag.lab.simulate import execute
from fairlag.report.page.build import runs_page
from fairlag.report.page.influence import influence_section
from fairlag.report.page.shell import html
from fairlag.report.page.spec import Named, Page
from fairlag.report.page.staleness import staleness_section
from tests.support.browser import PHONE, WIDE, chromium, visiting
from tests.support.command import Call

pytestmark = pytest.mark.slow

SECTIONS = [
    "experiment",
    "accuracy",
    "classes",
    "influence",
    "staleness",
    "timeline",
    "weights",
    "incentives",
    "losses",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page about three strategies with two seeds on digits, in a fleet that loses some tasks."""
    folder = tmp_path_factory.mktemp("report")
    experiment = load("demo").checked(aggregations=60)
    tables = tuple(table.model_copy(update={"vanish": 0.05}) for table in experiment.clients)
    experiment = experiment.checked(clients=tables)
    runs = execute(Plan(experiment, (0, 1), folder / "runs"), new=True, workers=1)
    # Throttling is tried without lost tasks, which takes fewer updates to tell.
    audits = audit(load("demo").checked(aggregations=60), seeds=1, incentive_error=0.3)
    (folder / "report.html").write_text(html(runs_page(runs, audits)), "utf-8")
    return (folder / "report.html").as_uri()


def test_every_section_is_there_and_shows_something(browser: Browser, report: str) -> None:
    with visiting(browser, report) as visit:
        page = visit.page
        assert [each.get_attribute("id") for each in page.query_selector_all("main section")] == SECTIONS
        for name in SECTIONS:
            section = page.locator(f"#{name}")
            section.scroll_into_view_if_needed()
            assert section.is_visible()
            assert section.locator("h2").inner_text()
            marks = section.locator(".plot .trace, .plot .points, .plot .hm, .plot image, table td")
            assert marks.count() > 0, name
        for chart in page.locator("figure").all():
            assert chart.locator("figcaption").inner_text().endswith(".")
            assert chart.get_by_role("button", name="Save as PNG").is_visible()
        links = page.locator("nav a")
        assert links.count() == len(SECTIONS)
        links.nth(5).click()
        visit.until("document.querySelector('#timeline').getBoundingClientRect().top < 200")


def test_switches_change_what_is_drawn_by_mouse_and_by_keyboard(browser: Browser, report: str) -> None:
    with visiting(browser, report) as visit:
        accuracy = visit.page.locator("#chart-accuracy")
        before, span = visit.shown("accuracy"), visit.range_of("accuracy")
        accuracy.get_by_label("aggregations").check()
        assert visit.range_of("accuracy") != span
        assert visit.shown("accuracy") != before
        accuracy.get_by_label("virtual time").focus()
        visit.page.keyboard.press("Space")
        assert visit.range_of("accuracy") == span
        assert accuracy.get_by_label("virtual time").is_checked()
        visit.page.keyboard.press("Tab")
        visit.page.keyboard.press("ArrowRight")
        assert visit.shown("accuracy") != before


def test_zoom_by_buttons_keys_and_mouse_and_back(browser: Browser, report: str) -> None:
    with visiting(browser, report) as visit:
        timeline = visit.page.locator("#chart-timeline")
        timeline.scroll_into_view_if_needed()
        low, high = whole = visit.range_of("timeline")
        timeline.get_by_role("button", name="Zoom in").click()
        closer = visit.range_of("timeline")
        assert closer[1] - closer[0] == pytest.approx((high - low) / 2)
        timeline.get_by_role("button", name="Later").click()
        assert visit.range_of("timeline")[0] > closer[0]
        timeline.get_by_role("button", name="Reset the view").click()
        assert visit.range_of("timeline") == pytest.approx(whole)
        timeline.locator(".plot").focus()
        for key, moved in (("+", True), ("0", False), ("ArrowRight", True), ("0", False), ("-", True), ("0", False)):
            visit.page.keyboard.press(key)
            assert (visit.range_of("timeline") != pytest.approx(whole)) == moved, key
        box = timeline.locator(".nsewdrag").first.bounding_box()
        assert box is not None
        across = box["y"] + box["height"] / 2
        visit.page.mouse.move(box["x"] + 50, across)
        visit.page.mouse.down()
        visit.page.mouse.move(box["x"] + 250, across, steps=5)
        visit.page.mouse.up()
        zoomed = visit.range_of("timeline")
        assert zoomed[1] - zoomed[0] < (high - low) / 2


def test_a_bar_of_the_timeline_says_what_it_is(browser: Browser, report: str) -> None:
    with visiting(browser, report) as visit:
        timeline = visit.page.locator("#chart-timeline")
        timeline.scroll_into_view_if_needed()
        bar = timeline.locator(".bars .point path").nth(3).bounding_box()
        assert bar is not None
        visit.page.mouse.move(bar["x"] + bar["width"] / 2, bar["y"] + bar["height"] / 2, steps=4)
        told = timeline.locator(".hoverlayer .hovertext").first
        told.wait_for()
        words = told.text_content() or ""
        assert "client" in words
        assert "version" in words


@pytest.mark.parametrize(("kind", "begins"), [("PNG", b"\x89PNG"), ("SVG", b"<svg")])
def test_figures_can_be_saved(browser: Browser, report: str, tmp_path: Path, kind: str, begins: bytes) -> None:
    with visiting(browser, report) as visit:
        with visit.page.expect_download() as coming:
            visit.page.locator("#chart-lorenz").get_by_role("button", name=f"Save as {kind}").click()
        assert coming.value.suggested_filename == f"fairlag-lorenz.{kind.lower()}"
        coming.value.save_as(tmp_path / "figure")
        assert (tmp_path / "figure").read_bytes().startswith(begins)
        with visit.page.expect_download() as coming:
            visit.page.locator("#chart-timeline").get_by_role("button", name=f"Save as {kind}").click()
        assert coming.value.suggested_filename == f"fairlag-timeline-buffered-fedavg.{kind.lower()}"


def test_light_and_dark_follow_the_system_or_the_reader(browser: Browser, report: str) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    paper = "document.querySelector('#chart-accuracy .plot')._fullLayout.paper_bgcolor"
    with visiting(browser, report, scheme="dark") as dark, visiting(browser, report) as light:
        assert dark.page.evaluate(ground) != light.page.evaluate(ground)
        assert dark.page.evaluate(paper) != light.page.evaluate(paper)
        light.page.get_by_label("Colours").select_option("dark")
        light.until(f"{paper} === '{dark.page.evaluate(paper)}'")
        assert light.page.evaluate(ground) == dark.page.evaluate(ground)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone(browser: Browser, report: str, scheme: str) -> None:
    with visiting(browser, report, PHONE, scheme, touch=True) as visit:
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        wide = visit.page.evaluate(
            "[...document.querySelectorAll('figure, .sheet, h1, h2, p, .plot svg')]"
            f".filter((each) => each.getBoundingClientRect().right > {PHONE[0]} + 1)"
            ".map((each) => each.outerHTML.slice(0, 80))"
        )
        assert wide == []


def test_long_names_and_many_strategies_fit_a_phone(browser: Browser, tmp_path: Path) -> None:
    strategies = [Named(f"a strategy with a rather long label of its own, {place}", place) for place in range(22)]
    groups = [f"clients of the kind number {place} with a long name" for place in range(6)]
    shares = np.linspace(1, 2, 24) / np.linspace(1, 2, 24).sum()
    heard = Influence(tuple(groups), np.arange(24), np.repeat(np.arange(6), 4), shares[None, :], Spread(0.9, None, 1))
    late = [GroupStaleness(name, np.array([0, 5, 3] + [1] * 300), 151.0) for name in groups]
    sections = [
        influence_section([(one, heard) for one in strategies]),
        staleness_section([(one, late) for one in strategies]),
    ]
    file = tmp_path / "page.html"
    file.write_text(html(Page("long names", [], {}, sections)), "utf-8")
    with visiting(browser, file.as_uri(), PHONE, touch=True) as visit:
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        for name in ("influence", "lorenz", "staleness"):
            title, legend, plot = (
                visit.page.locator(f"#chart-{name} {part}").last.bounding_box()
                for part in (".xtitle", ".legend", ".plot")
            )
            assert title and legend and plot
            assert title["y"] + title["height"] <= legend["y"] + 1
            assert legend["y"] + legend["height"] <= plot["y"] + plot["height"] + 1
            right = visit.page.evaluate(
                f"Math.max(...[...document.querySelectorAll('#chart-{name} .annotation-text')]"
                ".map((each) => each.getBoundingClientRect().right), 0)"
            )
            assert right <= plot["x"] + plot["width"]
        lines = "document.querySelectorAll('#chart-lorenz .legend .traces').length"
        assert visit.page.evaluate(lines) == 23
        visit.page.locator("#chart-lorenz").get_by_label("Highlight").select_option("s3")
        faint = "document.querySelector('#chart-lorenz .plot')._fullData.filter((each) => each.opacity < 1).length"
        visit.until(f"{faint} === 21")


def test_names_are_text_and_never_markup(browser: Browser, tmp_path: Path, call: Call) -> None:
    hostile = "<img src=x onerror=alert(1)></script>%{x}"
    experiment = parse(
        {
            "name": hostile,
            "aggregations": 30,
            "clients": [
                {"group": hostile, "count": 3, "delay": "uniform(1, 2)"},
                {"group": "@s0 <b>", "count": 2, "delay": "uniform(8, 12)", "vanish": 0.2},
            ],
            "strategies": [{"use": "fedstaleweight", "label": hostile, "buffer": 3}],
        }
    )
    execute(Plan(experiment, (0,), tmp_path / "runs"), new=True, workers=1)
    file = tmp_path / "report.html"
    assert call("report", str(tmp_path / "runs"), "--out", str(file), "--workers", "1").code == 0
    with visiting(browser, file.as_uri()) as visit:
        assert visit.page.locator("h1").inner_text() == hostile
        assert visit.page.locator("img").count() == 0
        assert "<img" in visit.page.locator("#chart-influence").inner_text()


def test_an_audit_has_a_page_of_its_own(browser: Browser, tmp_path: Path, call: Call) -> None:
    file = tmp_path / "audit.html"
    words = ("audit", "demo", "--aggregations", "100", "--seeds", "1", "--incentive-error", "0.3", "--workers", "1")
    done = call(*words, "--report", str(file))
    assert done.code == 0
    assert done.out.endswith(f"The report was written to {file}\n")
    with visiting(browser, file.as_uri(), WIDE) as visit:
        sections = [each.get_attribute("id") for each in visit.page.query_selector_all("main section")]
        assert sections == ["experiment", "influence", "staleness", "incentives", "deployment", "losses"]
        assert visit.page.locator("#chart-incentives .plot .scatterlayer .trace").count() > 0
