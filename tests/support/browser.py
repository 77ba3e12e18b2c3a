"""A real browser for tests: Debian's chromium, driven by Playwright, which records every error of a page."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.patience import wait_until

WIDE, PHONE = (1200, 900), (390, 844)

# The browser must fetch nothing but the page. There is no sandbox for root, as in a container.
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
    """An open page, and its errors."""

    page: Page
    mishaps: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """The addresses of everything that it fetched."""

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
        """The part of its horizontal axis that a chart shows."""
        low, high = self.page.evaluate(f"document.querySelector('#chart-{chart} .plot')._fullLayout.xaxis.range")
        return float(low), float(high)

    def shown(self, chart: str) -> str:
        """What a chart shows, as text that differs if the drawing differs."""
        return str(self.page.inner_html(f"#chart-{chart} .plot .main-svg >> nth=0"))


@contextmanager
def visiting(
    browser: Browser, address: str, size: tuple[int, int] = WIDE, scheme: str = "light", *, touch: bool = False
) -> Iterator[Visit]:
    """Opens a page and draws it. At the end it fails if the page had errors or fetched anything from elsewhere."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if scheme == "dark" else "light",
        has_touch=touch,
        accept_downloads=True,
    )
    try:
        visit = Visit(context.new_page())
        visit.page.set_default_timeout(120_000)  # five megabytes of script take long on a busy machine
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
