"""Flame graphs: asked for until they are there, zoomed and searched by pointer and keyboard, told in text."""

import pytest

from penstock.engine.hosting.os.clock import wall_ms
from tests.tools.dashboard.told_processes import ToldProcesses
from tests.tools.observation.job_records import JOB, SINK, SOURCE, attempt
from tests.tools.waiting import wait_until

pytestmark = pytest.mark.browser
PAGE = f"#/jobs/{JOB}/vertices/{SINK}/flamegraph"


def frame(name, value, *children):
    return {"name": name, "value": value, "children": list(children)}


FULL = frame(
    "root",
    200,
    frame(
        "penstock.task.run:1",
        200,
        frame("app.parse:12", 120, frame("json.loads:20", 90)),
        frame("app.store:30", 60),
        frame("penstock.gate.poll:9", 20),
    ),
)


@pytest.fixture
def processes(driver):
    """Samples come when the test says when they were taken."""
    driver.job().status("RUNNING").runs()
    told = ToldProcesses(JOB, trees={"full": FULL, "on_cpu": frame("root", 0)})
    driver.job_registry.started(told)
    return told


def test_it_asks_until_the_samples_are_there_and_then_no_more(driver, look, processes):
    tab = look().at(driver, PAGE).shows("sampling").shows("Each task is looked at 100 times")
    processes.sampled_ms = wall_ms()
    tab.shows("200 samples, until").shows("app.parse:12", ".frame")
    asked = len(processes.asked)
    tab.page.wait_for_timeout(2500)
    assert len(processes.asked) == asked
    assert processes.asked[-1] == ("full", None)
    assert tab.violations() == []


def test_new_samples_are_asked_for_by_a_button(driver, look, processes):
    processes.sampled_ms = wall_ms()
    tab = look().at(driver, PAGE).shows("200 samples")
    tab.page.get_by_role("button", name="Sample again").click()
    tab.shows("sampling").shows("app.parse:12", ".frame")
    processes.trees = {"full": frame("root", 50, frame("app.other:1", 50))}
    processes.sampled_ms += 60_000
    tab.shows("50 samples").shows("app.other:1", ".frame")
    tab.page.get_by_text("sampling").wait_for(state="detached")


def test_a_click_zooms_and_the_address_keeps_it(driver, look, processes):
    processes.sampled_ms = wall_ms()
    tab = look().at(driver, PAGE).shows("app.parse:12", ".frame")
    parse = tab.page.locator(".frame", has_text="app.parse:12")
    whole = tab.page.locator(".flame").bounding_box()["width"]
    assert parse.bounding_box()["width"] == pytest.approx(whole * 0.6, abs=3)
    parse.click()
    tab.page.wait_for_url("**zoom=*")
    tab.page.locator(".frame", has_text="app.store").wait_for(state="detached")
    assert parse.bounding_box()["width"] == pytest.approx(whole, abs=3)
    tab.shows("app.parse:12: 60 % of all samples, 120 samples, 30 in it alone", ".flame-told")
    tab.page.reload()
    tab.shows("app.parse:12: 60 %", ".flame-told")
    tab.page.get_by_role("button", name="Show all samples").click()
    tab.shows("app.store:30", ".frame")


def test_arrows_enter_and_escape_go_through_the_frames(driver, look, processes):
    processes.sampled_ms = wall_ms()
    tab = look().at(driver, PAGE).shows("app.parse:12", ".frame")
    tab.page.locator(".flame [tabindex='0']").focus()
    tab.page.keyboard.press("ArrowDown")
    tab.shows("penstock.task.run:1: 100 %", ".flame-told")
    tab.page.keyboard.press("ArrowDown")
    tab.shows("app.parse:12: 60 %", ".flame-told")
    tab.page.keyboard.press("ArrowRight")
    tab.shows("app.store:30: 30 %", ".flame-told")
    tab.page.keyboard.press("Enter")
    tab.page.locator(".frame", has_text="app.parse").wait_for(state="detached")
    tab.page.keyboard.press("Escape")
    tab.shows("app.parse:12", ".frame")


def test_a_search_tells_its_share_of_the_samples(driver, look, processes):
    processes.sampled_ms = wall_ms()
    tab = look().at(driver, f"{PAGE}?q=app.").shows("90 % of the samples have it, 180 of 200")
    assert tab.page.locator(".frame.found").count() == 2
    tab.page.get_by_label("Search").fill("json")
    tab.shows("45 % of the samples have it, 90 of 200")
    assert "q=json" in tab.page.url


def test_the_same_as_a_table_to_fold_and_unfold(driver, look, processes):
    processes.sampled_ms = wall_ms()
    tab = look().at(driver, PAGE).shows("app.parse:12", ".frame")
    tab.page.locator("summary", has_text="The same as a table").click()
    rows = tab.page.locator("[role=treegrid] tbody tr")
    assert [one.get_attribute("aria-level") for one in rows.all()] == ["1", "2", "3", "4", "3", "3"]
    tab.page.get_by_role("button", name="Fold app.parse:12").click()
    tab.page.get_by_role("button", name="Unfold app.parse:12").wait_for()
    assert rows.count() == 5
    assert "60 %" in tab.page.locator("[role=treegrid] tr", has_text="app.parse").inner_text()
    assert tab.violations() == []


def test_type_and_subtask_are_chosen_and_stand_in_the_address(driver, look, processes):
    processes.sampled_ms = wall_ms()
    tab = look().at(driver, PAGE).shows("200 samples")
    tab.page.locator(".card select").select_option("on_cpu")
    tab.shows("None of the samples is of this kind.")
    tab.page.locator("input[type=number]").fill("1")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url("**type=on_cpu&subtask=1")
    wait_until(lambda: processes.asked[-1] == ("on_cpu", 1), "the subtask is not asked for")
    tab.shows("None of the samples is of this kind.")


def test_a_subtask_that_is_not_there(driver, look, processes):
    tab = look()
    tab.allowed = ["404"]
    tab.at(driver, f"{PAGE}?subtask=7").shows("Invalid subtask index", "[role=alert]")


def test_nothing_is_sampled_where_nothing_runs(driver, look):
    job = driver.job().status("RUNNING").runs()
    driver.job_registry.started(ToldProcesses(JOB))
    for vertex_id in (SOURCE, SINK):
        for subtask in (0, 1):
            job.moves(attempt(vertex_id, subtask), "FINISHED")
    job.status("FINISHED")
    look().at(driver, PAGE).shows("No subtask of it runs, so there is nothing to sample.")
