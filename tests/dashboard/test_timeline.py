"""The timeline: lanes of states with causes, marks, zoom in the address, attempts of a vertex, and the story as a list."""

import pytest

from penstock.engine.model.ids import ExecutionVertexId
from penstock.engine.model.messages import ExecutionStateChanged, FailureInfo, ResetSubtasks
from penstock.engine.model.states import ExecutionState
from penstock.ops.jobs.failure_record import FailureSeen, FailuresSeen
from tests.dashboard.test_job_pages import a_minute_ago
from tests.tools.observation.job_records import PLACE, SINK, SOURCE, attempt

pytestmark = pytest.mark.browser


@pytest.fixture
def job(driver):
    """Subtask 1 of the source has failed after 20 s, and all began again 5 s later."""
    known = a_minute_ago()
    told = driver.job(known)
    told.now = known.submitted_ms + 1000
    told.status("RUNNING").runs()
    told.now += 20_000
    running, failed = ExecutionState.RUNNING, ExecutionState.FAILED
    told.tell(ExecutionStateChanged(attempt(subtask=1), running, failed, 0))
    failure = FailureInfo("UserCodeError", "ValueError: cannot use 17", is_user_code=True)
    seen = FailureSeen(failure, told.now, "Map (2/2)", attempt(subtask=1), PLACE, 1, restart=1)
    told.status("RESTARTING").tell(FailuresSeen(((seen, ()),)))
    told.now += 5000
    again = tuple(ExecutionVertexId(one, n) for one in (SOURCE, SINK) for n in range(2))
    return told.tell(ResetSubtasks(again, True, 7)).status("RUNNING").runs(number=1)


@pytest.fixture
def tab(driver, look, job):
    return look().at(driver, f"{job.path}/timeline?vertex={SOURCE}").shows("Attempts 1 to 4 of 4")


def lane(tab, name):
    return tab.page.get_by_role("list", name=name, exact=True)


def states(tab, name):
    said = [
        one.get_attribute("aria-label") for one in lane(tab, name).get_by_role("listitem").all()
    ]
    return [one.split(" from ")[0] for one in said]


def test_lanes_of_the_job_its_vertices_and_attempts(tab):
    assert states(tab, "Job")[-3:] == ["RUNNING", "RESTARTING", "RUNNING"]
    first = "Source: Numbers -> Map, subtask 1, attempt 0 on host-a"
    assert states(tab, first)[-2:] == ["RUNNING", "FAILED"]
    assert states(tab, "Source: Numbers -> Map, subtask 1, attempt 1 on host-a")[-1] == "RUNNING"
    assert tab.page.locator(".lane").count() == 3 + 4


CUT = """() => {
  const axis = document.querySelector(".ticks");
  const ends = [...axis.querySelectorAll(".tick")].map((one) => one.getBoundingClientRect().right);
  return [ends.length, ends.filter((one) => one > axis.getBoundingClientRect().right)];
}"""


@pytest.mark.parametrize("width", [320, 777, 1280, 1400])
def test_no_time_of_the_axis_is_cut(driver, look, job, width):
    tab = look(viewport={"width": width, "height": 700}).at(driver, f"{job.path}/timeline")
    tab.page.locator(".tick").first.wait_for()
    tab.page.get_by_role("button", name="Pause").click()
    number, cut = tab.page.evaluate(CUT)
    assert number > 0
    assert cut == []


def test_a_state_says_its_times_and_its_cause_to_pointer_and_keyboard(tab):
    first = lane(tab, "Source: Numbers -> Map, subtask 1, attempt 0 on host-a")
    first.get_by_role("listitem").last.hover()
    tab.shows("ValueError: cannot use 17", ".lane-said")
    lane(tab, "Job").get_by_role("listitem").last.focus()
    tab.shows("RUNNING", ".lane-said")
    tab.page.keyboard.press("ArrowLeft")
    tab.shows("RESTARTING", ".lane-said").shows("for 5.0 s", ".lane-said")
    tab.page.keyboard.press("ArrowDown")
    tab.shows("Source: Numbers -> Map", ".lane-said b")


def test_a_cause_leads_to_its_exception(tab):
    first = lane(tab, "Source: Numbers -> Map, subtask 1, attempt 0 on host-a")
    first.get_by_role("listitem").last.hover()
    tab.page.locator(".lane-said").get_by_role("link", name="the exception").click()
    tab.shows("ValueError: cannot use 17", "article")
    assert "filter=ValueError" in tab.page.url


def test_attempts_are_folded_and_the_address_keeps_it(tab):
    tab.page.get_by_role("button", name="Attempts of Source: Numbers -> Map").click()
    tab.page.wait_for_function("!location.hash.includes('vertex=')")
    assert tab.page.locator(".lane").count() == 3
    tab.page.go_back()
    tab.shows("Attempts 1 to 4 of 4")


def test_zoom_by_button_and_by_dragging(tab):
    tab.page.get_by_role("button", name="Zoom in").click()
    tab.page.wait_for_url("**from=*")
    half = tab.page.url
    box = lane(tab, "Job").bounding_box()
    tab.page.mouse.move(box["x"] + 20, box["y"] + 5)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + 220, box["y"] + 5, steps=3)
    tab.page.mouse.up()
    tab.page.wait_for_function("old => location.href !== old", arg=half)
    zoomed = tab.page.url
    tab.page.reload()
    tab.shows("Show all")
    assert tab.page.url == zoomed
    tab.page.get_by_role("button", name="Show all").click()
    tab.page.wait_for_function("!location.hash.includes('from=')")


def test_marks_have_signs_and_the_story_has_them_in_words(tab):
    signs = tab.page.locator(".tick-mark")
    signs.first.wait_for()
    titles = " ".join(one.get_attribute("title") for one in signs.all())
    assert "ValueError: cannot use 17" in titles
    story = tab.page.get_by_role("region", name="Story")
    told = story.locator("li").all_inner_texts()
    assert any("failure" in one and "Map (2/2) failed: ValueError" in one for one in told)
    assert any("restart" in one and "4 subtasks restart from checkpoint 7" in one for one in told)


def test_the_story_is_filtered(tab):
    tab.page.get_by_label("Filter the story").fill("restart from")
    tab.page.wait_for_function("document.querySelectorAll('.story li').length === 1")
    assert "filter=restart+from" in tab.page.url


def test_a_job_that_flaps_is_drawn_with_few_elements(driver, look):
    told = driver.job(a_minute_ago())
    told.now = told.facts.submitted_ms
    for _ in range(400):
        told.status("RUNNING", after_ms=60).status("RESTARTING", after_ms=60)
    tab = look().at(driver, f"{told.path}/timeline")
    lane(tab, "Job").get_by_role("listitem").first.wait_for()
    assert 1 < lane(tab, "Job").get_by_role("listitem").count() <= 310
    lane(tab, "Job").get_by_role("listitem").nth(1).hover()
    tab.shows("states within", ".lane-said")
    assert tab.violations() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_violation_with_attempts(driver, look, job, scheme):
    tab = look(color_scheme=scheme).at(driver, f"{job.path}/timeline?vertex={SOURCE}")
    tab.shows("Attempts 1 to 4 of 4")
    assert tab.violations() == []
