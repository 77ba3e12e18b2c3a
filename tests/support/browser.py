"""A real browser for tests: Debian's chromium, driven by Playwright, which notes whatever goes wrong in a page."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.patience import wait_until

WIDE, PHONE = (1200, 900), (390, 844)

# Nothing but the page is to be fetched, and as root, as in a container, there is no sandbox.
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser, without a window."""
    where = shutil.which("chromium")
    if where is None:
        pytest.fail("these tests need a browser: install chromium (on Debian, the package of that name)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=where, args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visit:
    """A page that is open, and what went wrong in it."""

    page: Page
    mishaps: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """Everything that it fetched."""

    def until(self, condition: str) -> None:
        """Waits until a condition holds in the page.

        Not by Playwright's own waiting, which evaluates text inside of the page: that is what its policy forbids.
        """
        met = lambda: self.page.evaluate(condition)  # noqa: E731
        wait_until(met, condition, meanwhile=lambda: self.page.wait_for_timeout(50))

    def drawn(self) -> None:
        """Waits until everything is drawn."""
        self.until("Number(document.documentElement.dataset.drawn || 0) >= 1")

    def range_of(self, chart: str) -> tuple[float, float]:
        """What part of its horizontal axis a chart shows."""
        low, high = self.page.evaluate(f"document.querySelector('#chart-{chart} .plot')._fullLayout.xaxis.range")
        return float(low), float(high)

    def shown(self, chart: str) -> str:
        """What is drawn in a chart, as text that differs when it does."""
        return str(self.page.inner_html(f"#chart-{chart} .plot .main-svg >> nth=0"))


@contextmanager
def visiting(
    browser: Browser, address: str, size: tuple[int, int] = WIDE, scheme: str = "light", *, touch: bool = False
) -> Iterator[Visit]:
    """A page, drawn; at the end, nothing may have gone wrong, and nothing been fetched from elsewhere."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if scheme == "dark" else "light",
        has_touch=touch,
        accept_downloads=True,
    )
    try:
        visit = Visit(context.new_page())
        visit.page.set_default_timeout(120_000)  # a busy machine takes its time over five megabytes of script
        visit.page.on(
            "console", lambda said: visit.mishaps.append(said.text) if said.type in ("error", "warning") else None
        )
        visit.page.on("pageerror", lambda error: visit.mishaps.append(str(error)))
        visit.page.on("request", lambda request: visit.asked.append(request.url))
        visit.page.goto(address)
        visit.drawn()
        yield visit
    finally:
        context.close()
    assert visit.mishaps == []
    here = urlsplit(address)
    strange = [url for url in visit.asked if urlsplit(url).scheme not in ("data", "blob")]
    assert {urlsplit(url)[:2] for url in strange} == {here[:2]}
