"""The log page: the end first, older parts on demand, search, errors, follow."""

import pytest

from penstock.engine.hosting.reporting.logs.folder import LogFolder
from penstock.engine.model.ids import ResourceId, taskmanager_name
from penstock.engine.model.messages import RegisterTaskManager
from penstock.ops.rest.requests import log_handlers
from tests.tools.dashboard.told_processes import ToldProcesses
from tests.tools.observation.job_records import JOB

pytestmark = pytest.mark.browser
PAGE = "#/driver/log"
PIECE = 256 * 1024


def line(number, level="INFO", text=""):
    head = f"2026-07-01 10:11:12,345 {level:7} app [job=7c0f2b] - "
    return f"{head}line {number} {text}\n"


@pytest.fixture
def log(tmp_path, monkeypatch):
    """The driver's log, which is empty yet."""
    path = tmp_path / "penstock.log"
    path.write_text("")
    monkeypatch.setattr(log_handlers, "log_folder", lambda: LogFolder(str(path)))
    return path


def first_lines(tab):
    return tab.page.locator(".log-line").first.inner_text()


def test_a_process_without_log_files_says_so(driver, look, monkeypatch):
    monkeypatch.setattr(log_handlers, "log_folder", lambda: LogFolder(""))
    look().at(driver, PAGE).shows("This driver writes no log files.")


def test_an_empty_log_says_so(driver, look, log):
    look().at(driver, PAGE).shows("The file is empty.")


def test_a_short_log_is_there_with_its_begin_and_its_levels(driver, look, log):
    log.write_text(
        line(1) + line(2, "WARNING") + line(3, "ERROR") + "Traceback\n  of it\n" + line(4)
    )
    tab = look().at(driver, PAGE).shows("line 4", ".log")
    tab.shows("The file begins here.").shows("1 error")
    kinds = [one.get_attribute("class") for one in tab.page.locator(".log-line").all()]
    levels = [one.split()[1] for one in kinds]
    assert levels == ["info", "warning", "error", "error", "error", "info"]
    assert tab.violations() == []


def test_the_end_comes_first_and_older_parts_when_they_are_asked_for(driver, look, log):
    size = len(line(1000))
    count = 3 * PIECE // size
    log.write_text("".join(line(1000 + number) for number in range(count)))
    tab = look().at(driver, PAGE).shows(f"line {1000 + count - 1} ", ".log")
    assert "line 1000 " not in tab.text(".log")
    loaded = tab.page.get_by_text(f"{PIECE // 1000} kB of")
    loaded.wait_for()
    while tab.page.get_by_role("button", name="Load older lines").count():
        before = tab.text("main")
        tab.page.get_by_role("button", name="Load older lines").click()
        tab.page.locator("main").filter(has_not_text=before).wait_for()
        tab.page.locator("[aria-busy=false]").first.wait_for()
    tab.shows("The file begins here.")
    tab.page.locator(".log").evaluate("one => one.scrollTo(0, 0)")
    tab.shows("line 1000 ", ".log")


def test_what_is_not_ascii_is_whole_at_the_border_of_two_parts(driver, look, log):
    text = "\u00e4\u20ac\U0001f600" * 11
    count = PIECE // len(line(1000, text=text).encode()) * 2
    log.write_text("".join(line(1000 + number, text=text) for number in range(count)))
    tab = look().at(driver, PAGE).shows(f"line {1000 + count - 1} ", ".log")
    tab.page.get_by_role("button", name="Load older lines").click()
    tab.page.get_by_label("Search").fill("\ufffd")
    tab.shows("0 lines found")


def test_new_lines_come_by_themselves_and_stay_away_without_follow(driver, look, log):
    log.write_text(line(1))
    tab = look().at(driver, PAGE).shows("line 1 ", ".log")
    with log.open("a") as file:
        file.write(line(2))
    tab.shows("line 2 ", ".log")
    tab.page.get_by_label("Follow").uncheck()
    tab.page.wait_for_url("**follow=no")
    with log.open("a") as file:
        file.write(line(3))
    other = look().at(driver, PAGE).shows("line 3 ", ".log")
    assert "line 3 " not in tab.text(".log")
    assert other.faults == []


def test_a_log_that_is_rolled_begins_anew(driver, look, log):
    log.write_text("".join(map(line, range(50))))
    tab = look().at(driver, PAGE).shows("line 49 ", ".log")
    log.rename(log.with_name("penstock.log.1"))
    log.write_text(line(100))
    tab.shows("line 100 ", ".log").shows("Older lines: penstock.log.1")
    tab.page.get_by_role("link", name="penstock.log.1").click()
    tab.shows("line 49 ", ".log").shows("Older lines are gone.")
    assert "file=penstock.log.1" in tab.page.url


def test_a_search_is_in_the_address_and_goes_from_hit_to_hit(driver, look, log):
    log.write_text(
        "".join(line(number, text="Needle" if number % 50 == 7 else "") for number in range(200))
    )
    tab = look().at(driver, f"{PAGE}?q=needle").shows("4 lines found")
    tab.page.get_by_role("button", name="Former hit").click()
    tab.shows("line 157 ", ".log-line.chosen")
    tab.page.get_by_role("button", name="Former hit").click()
    tab.shows("line 107 ", ".log-line.chosen")
    tab.page.get_by_role("button", name="Next hit").click()
    tab.shows("line 157 ", ".log-line.chosen")
    assert tab.page.locator(".chosen mark").inner_text() == "Needle"


def test_a_search_goes_into_older_parts(driver, look, log):
    count = 3 * PIECE // len(line(1000))
    log.write_text(line(0, text="needle") + "".join(line(1000 + number) for number in range(count)))
    tab = look().at(driver, f"{PAGE}?q=needle").shows("0 lines found")
    tab.page.get_by_role("button", name="Search older lines").click()
    tab.shows("1 line found").shows("The file begins here.")


def test_errors_are_reached_without_reading(driver, look, log):
    log.write_text("".join(line(n, "ERROR" if n in {20, 150} else "INFO") for n in range(200)))
    tab = look().at(driver, PAGE).shows("2 errors")
    tab.page.get_by_role("button", name="Former error").click()
    tab.shows("line 150 ", ".log-line.chosen")
    tab.page.get_by_role("button", name="Former error").click()
    tab.shows("line 20 ", ".log-line.chosen")
    tab.page.get_by_label("Level").select_option("errors")
    tab.shows("2 of 200 lines")
    assert tab.page.locator(".log-line").count() == 2


def test_a_large_log_leaves_few_lines_in_the_page(driver, look, log):
    log.write_text("".join(line(1000 + number) for number in range(3000)))
    tab = look().at(driver, PAGE).shows("line 3999 ", ".log")
    assert tab.page.locator(".log-line").count() < 200


def test_the_log_of_a_taskmanager_and_what_its_functions_print(driver, look, tmp_path):
    (tmp_path / "tm.log").write_text(line(5))
    (tmp_path / "tm.out").write_text("printed\n")
    resource_id = ResourceId("tm-1")
    driver.job().tell(RegisterTaskManager(resource_id, "host-a", 5001, 2, 77, 2, "3.11"))
    driver.job_registry.started(ToldProcesses(JOB, tmp_path / "tm.log"))
    tab = look().at(driver, f"#/taskmanagers/{taskmanager_name(JOB, resource_id)}/log")
    tab.shows("line 5 ", ".log")
    tab.page.get_by_label("File").select_option("tm.out")
    tab.shows("printed", ".log")


def test_a_taskmanager_that_has_ended_says_that_its_last_lines_are_left(driver, look, tmp_path):
    (tmp_path / "last-lines.log").write_text(line(6))
    resource_id = ResourceId("tm-1")
    driver.job().tell(RegisterTaskManager(resource_id, "host-a", 5001, 2, 77, 2, "3.11"))
    driver.job_registry.started(ToldProcesses(JOB, tmp_path / "last-lines.log"))
    tab = look().at(driver, f"#/taskmanagers/{taskmanager_name(JOB, resource_id)}/log")
    tab.shows("This is what is left of the log: its last lines.")


def test_no_violation_and_no_wide_page_on_a_phone(driver, look, log):
    log.write_text(line(1, "ERROR", "x" * 500))
    tab = look(color_scheme="dark", viewport={"width": 320, "height": 700})
    tab.at(driver, PAGE).shows("line 1 ", ".log")
    assert tab.violations() == []
    assert not tab.is_wider_than_its_window()
