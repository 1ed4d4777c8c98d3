"""Pages in a real Chromium. A page that writes an error to its console, or asks what is refused, fails its test."""

import contextlib
import shutil
from importlib.resources import files

from playwright.sync_api import sync_playwright

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
PATIENCE_MS = 60_000
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


@contextlib.contextmanager
def chromium():
    """The browser that the system has."""
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    assert found, "these tests need Chromium: install the system's package, or `make chromium`"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


class Looking:
    """One tab. `faults`: what its console and its requests complained of; `allowed`: parts of texts that a test expects there."""

    def __init__(self, browser, **more) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1400, "height": 1000}} | more)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.faults = []
        self.allowed = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("requestfailed", self._failed)

    def _said(self, message):
        if message.type in {"error", "warning"}:
            self.faults.append(f"console: {message.text}")

    def _failed(self, request):
        if "ERR_ABORTED" not in (request.failure or ""):  # The page left the stream itself.
            self.faults.append(f"request: {request.url} {request.failure}")

    def at(self, driver, path="#/"):
        """Open a view of a driver."""
        self.page.goto(f"{driver.address}/{path}")
        return self

    def text(self, selector="body"):
        return self.page.locator(selector).first.inner_text()

    def shows(self, text, selector="body"):
        """Wait until a part of the page has this text."""
        self.page.locator(selector).filter(has_text=text).first.wait_for()
        return self

    def violations(self):
        """What axe finds against WCAG, level A and AA: (rule, the element) of each."""
        source = files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
        self.page.evaluate(source)
        told = self.page.evaluate(
            "levels => axe.run(document, {runOnly: {type: 'tag', values: levels}})", LEVELS
        )
        return [
            (one["id"], node["html"][:200]) for one in told["violations"] for node in one["nodes"]
        ]

    def is_wider_than_its_window(self):
        return self.page.evaluate(
            "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )

    def close(self):
        self.context.close()
        faults = [one for one in self.faults if not any(part in one for part in self.allowed)]
        assert faults == [], "\n".join(faults)
