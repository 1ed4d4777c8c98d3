"""The exceptions page: kinds of failures with the user's line, where and how often, and the whole text on demand."""

import pytest

from penstock.engine.model.ids import taskmanager_name
from penstock.engine.model.messages import FailureInfo
from penstock.ops.jobs.failure_record import FailureSeen, FailuresSeen
from penstock.ops.jobs.snapshots import RestartFacts
from tests.dashboard.test_job_pages import a_minute_ago
from tests.tools.observation.job_records import JOB, PLACE, SINK, attempt

pytestmark = pytest.mark.browser
FRAMES = "".join(
    f'  File "/site/penstock/f{i}.py", line {i}, in f\n    call()\n' for i in range(90)
)
TEXT = f"""\
ValueError: cannot use 17
  File "/home/me/prices.py", line 20, in parse
    return int(value)
  in operator: parse prices
  at record:   ('a', 17)
  built at:    /home/me/prices.py:40
  all frames:
{FRAMES}ValueError: the last line"""
OTHER = "Traceback (most recent call last):\nOSError: no space on device 7"


def seen(job, number, text=TEXT, one=None, **more):
    failure = FailureInfo("UserCodeError", text, is_user_code=text is TEXT)
    return FailureSeen(failure, job.now, "M[1]", one or attempt(subtask=1), PLACE, number, **more)


@pytest.fixture
def job(driver):
    """It has failed three times with one error, and once with another that came with it."""
    told = (
        driver.job(a_minute_ago(restarts=RestartFacts("fixed-delay", 9))).status("RUNNING").runs()
    )
    came_with = seen(told, 4, OTHER, attempt(SINK, 0))
    told.status("RESTARTING").status("RUNNING")
    entries = [(seen(told, number, restart=number, delay_ms=1500), ()) for number in (1, 2)]
    entries.append((seen(told, 3, restart=3, delay_ms=1500), (came_with,)))
    return told.tell(FailuresSeen(tuple(entries)))


@pytest.fixture
def tab(driver, look, job):
    return look().at(driver, f"{job.path}/exceptions").shows("cannot use 17")


def kinds(tab):
    return tab.page.get_by_role("article")


def test_the_root_cause_stands_first_with_the_line_of_the_program(tab):
    first = kinds(tab).first
    assert first.locator("h2").inner_text() == "ValueError: cannot use 17"
    line = first.locator(".user-line").inner_text()
    assert line.split() == [
        "/home/me/prices.py,",
        "line",
        "20,",
        "in",
        "parse",
        "return",
        "int(value)",
    ]
    assert "It came with another failure." in kinds(tab).nth(1).inner_text()
    assert "No line of the program is named" in kinds(tab).nth(1).inner_text()


def test_where_how_often_and_what_followed(tab):
    told = kinds(tab).first.inner_text()
    for part in ("3 times", "parse prices", "/home/me/prices.py:40", "('a', 17)"):
        assert part in told
    assert "Restart 3 of 9 followed" in told
    assert "Subtasks\n1 \u00d7 3" in told
    place = kinds(tab).first.get_by_role("link", name="host-a")
    name = taskmanager_name(JOB, PLACE.resource_id)
    assert place.get_attribute("href") == f"#/taskmanagers/{name}"


def test_the_whole_text_is_asked_for_when_it_is_wanted(tab):
    assert "the last line" not in kinds(tab).first.inner_text()
    with tab.page.expect_request(lambda asked: "fingerprint" in asked.url):
        kinds(tab).first.get_by_text("Whole text of the newest one").click()
    tab.shows("the last line", ".stack-text")
    assert "open=" in tab.page.url
    tab.page.reload()
    tab.shows("the last line", ".stack-text")
    kinds(tab).first.get_by_text("Whole text of the newest one").click()
    tab.page.locator(".stack-text").wait_for(state="detached")
    assert "open=" not in tab.page.url


def test_kinds_are_filtered_and_the_address_keeps_it(tab):
    tab.page.get_by_label("Filter failures").fill("device oserror")
    tab.shows("1 of 2", "label")
    assert kinds(tab).locator("h2").all_inner_texts() == ["OSError: no space on device 7"]
    tab.page.reload()
    tab.shows("1 of 2", "label")
    assert tab.page.get_by_label("Filter failures").input_value() == "device oserror"


def test_a_new_failure_appears_by_itself(tab, job):
    job.tell(FailuresSeen(((seen(job, 5, "KeyError: 'new'"), ()),)))
    tab.shows("KeyError: 'new'", "article")


def test_a_hundred_kinds_are_kept_and_the_others_counted(driver, look, job):
    for number in range(10, 115):
        text = f"E{chr(65 + number % 26)}{chr(65 + number // 26)}Error: x"
        job.tell(FailuresSeen(((seen(job, number, text), ()),)))
    look().at(driver, f"{job.path}/exceptions").shows("Shown: 100 of 107 kinds of failures")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_violation(driver, look, job, scheme):
    tab = look(color_scheme=scheme, viewport={"width": 320, "height": 700})
    tab.at(driver, f"{job.path}/exceptions").shows("cannot use 17")
    tab.page.get_by_text("Whole text of the newest one").first.click()
    tab.shows("the last line", ".stack-text")
    assert tab.violations() == []
    assert not tab.is_wider_than_its_window()
