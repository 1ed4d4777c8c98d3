"""What all pages have: the state of the connection, pause, colours, and the way around."""

import pytest

pytestmark = pytest.mark.browser
WIDTHS = [(320, 700), (1400, 1000), (3840, 2160)]


def test_a_driver_without_jobs_says_how_one_begins(driver, look):
    tab = look().at(driver)
    tab.shows("This driver has no job yet.").shows("updated")
    assert tab.page.title() == "Overview \u00b7 Penstock"


def test_a_job_appears_by_itself(driver, look):
    tab = look().at(driver).shows("This driver has no job yet.")
    driver.job().status("RUNNING").runs()
    tab.shows("4 of 4 run")
    tab.page.get_by_role("link", name="job", exact=True).click()
    tab.shows("up ", "main").shows("RUNNING", ".badge")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", WIDTHS, ids=str)
def test_the_frame_has_no_violation_at_any_width(driver, look, scheme, size):
    driver.job().status("RUNNING").runs()
    tab = look(color_scheme=scheme, viewport={"width": size[0], "height": size[1]})
    tab.at(driver).shows("4 of 4 run")
    assert tab.violations() == []
    assert not tab.is_wider_than_its_window()


def test_a_lost_driver_is_told_and_what_was_known_stays(driver, look):
    driver.job().status("RUNNING").runs()
    tab = look().at(driver).shows("4 of 4 run")
    tab.allowed = [
        "ERR_CONNECTION_REFUSED",
        "ERR_INCOMPLETE_CHUNKED_ENCODING",
        "ERR_EMPTY_RESPONSE",
    ]
    driver.stop()
    tab.shows("The driver has not answered since", "[role=alert]").shows("4 of 4 run")
    driver.start()
    tab.page.locator("[role=alert]").wait_for(state="detached")
    tab.shows("updated")


def test_a_pause_keeps_the_page_as_it_is(driver, look):
    job = driver.job().status("RUNNING").runs()
    tab = look().at(driver).shows("4 of 4 run")
    tab.page.get_by_role("button", name="Pause").click()
    tab.shows("paused at")
    job.status("CANCELLING").status("CANCELED")
    other = look().at(driver).shows("CANCELED")
    assert "CANCELED" not in tab.text("main")
    tab.page.get_by_role("button", name="Go on").click()
    tab.shows("CANCELED", "main")
    assert other.faults == []


def test_the_time_between_updates_is_kept_for_the_next_page(driver, look):
    tab = look().at(driver).shows("updated")
    with tab.page.expect_request(lambda asked: "interval=10000" in asked.url):
        tab.page.get_by_label("Time between updates").select_option("10000")
    with tab.page.expect_request(lambda asked: "interval=10000" in asked.url):
        tab.page.reload()


def test_colours_are_chosen_and_kept(driver, look):
    tab = look(color_scheme="light").at(driver).shows("updated")
    background = "getComputedStyle(document.documentElement).backgroundColor"
    light = tab.page.evaluate(background)
    tab.page.get_by_label("Colours").select_option("dark")
    dark = tab.page.evaluate(background)
    assert dark != light
    tab.page.reload()
    tab.shows("updated")
    assert tab.page.evaluate(background) == dark


def test_an_unknown_page_and_an_unknown_job_say_so(driver, look):
    tab = look().at(driver, "#/nowhere/at/all")
    tab.shows("There is no page nowhere/at/all")
    tab.at(driver, f"#/jobs/{'f' * 32}").shows(f"Job {'f' * 32} not found")
    tab.at(driver, "#/jobs/ffff").shows("Job ffff not found")


def test_the_keyboard_reaches_the_content_first(driver, look):
    tab = look().at(driver).shows("updated")
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.textContent") == "To the content"
    tab.page.keyboard.press("Enter")
    assert tab.page.evaluate("document.activeElement.id") == "content"


@pytest.mark.parametrize("path", ["#/%zz", "#/nowhere"])
def test_an_address_that_is_no_page_says_so(driver, look, path):
    tab = look().at(driver, path).shows("updated")
    tab.shows("There is no page")
    tab.page.get_by_role("link", name="All jobs of this driver").click()
    tab.shows("This driver has no job yet.")
