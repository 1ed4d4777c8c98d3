import contextlib
from collections import Counter
from pathlib import Path

import pytest

from tests.tools.dashboard.browser import Looking, chromium
from tests.tools.dashboard.told_driver import ToldDriver

HERE = Path(__file__).parent


IN_EVERY_RUN = {
    "test_frame.py": 6,
    "test_first_screen.py": 5,
    "test_sick_jobs.py": 5,
    "test_demo.py": 1,
    "test_rescales.py": 2,
}
USUALLY = 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """A page in a browser takes seconds. The first tests of each file are in every run, the others are `long`: `make browser` has all."""
    seen = Counter()
    for item in items:
        if item.path.parent == HERE:
            seen[item.path.name] += 1
            if seen[item.path.name] > IN_EVERY_RUN.get(item.path.name, USUALLY):
                item.add_marker(pytest.mark.long)


@pytest.fixture(scope="module")
def browser():
    """For the tests of one file: while it runs, this thread has an event loop, which other tests do not expect."""
    with chromium() as started:
        yield started


@pytest.fixture
def start_driver():
    with contextlib.ExitStack() as started:
        yield lambda **settings: started.enter_context(ToldDriver.running(**settings))


@pytest.fixture
def driver(start_driver):
    return start_driver()


# ruff: ignore[unused-function-argument] - a page complains of a driver that goes before it
@pytest.fixture
def look(browser, start_driver):
    """Opens tabs, all of which must be without faults in the end."""
    with contextlib.ExitStack() as opened:

        def begin(**more):
            tab = Looking(browser, **more)
            opened.callback(tab.close)
            return tab

        yield begin
