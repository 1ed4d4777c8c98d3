"""The configuration page: each option with its value, default and who set it, and how checkpoints and restarts are configured."""

import dataclasses

import pytest

from penstock.engine.model.config import Layer
from penstock.ops.jobs.snapshots import OptionFacts, RestartFacts
from tests.dashboard.test_job_pages import a_minute_ago
from tests.tools.observation.job_records import facts

pytestmark = pytest.mark.browser
SET = {
    "execution.checkpointing.interval": "5 s",
    "parallelism.default": "4",
    "fs.s3a.secret.key": "swordfish",
}
BY = {
    "execution.checkpointing.interval": Layer.PROGRAM,
    "parallelism.default": Layer.COMMAND_LINE,
    "fs.s3a.secret.key": Layer.SPARK,
}


@pytest.fixture
def job(driver):
    known = a_minute_ago(
        configuration=SET,
        options=OptionFacts(origins=BY),
        user_config={"day": "monday"},
        restarts=RestartFacts("Restarts up to 3 times", 3),
    )
    return driver.job(known).status("RUNNING").runs()


@pytest.fixture
def tab(driver, look, job):
    return look().at(driver, f"{job.path}/options").shows("3 of ")


def rows(tab):
    return tab.page.get_by_role("region", name="Options", exact=True).locator("tbody tr")


def test_those_that_are_set_come_first_with_who_set_them(tab):
    first = [rows(tab).nth(place).inner_text() for place in range(4)]
    by_key = {one.split("\t")[0].strip(): one for one in first}
    assert {*by_key} > {*SET}
    assert "the program" in by_key["execution.checkpointing.interval"]
    assert "5 s" in by_key["execution.checkpointing.interval"]
    assert "the command line (-D)" in by_key["parallelism.default"]
    assert "Spark's configuration" in by_key["fs.s3a.secret.key"]
    assert "nobody" in first[3]


def test_a_default_and_the_meaning_stand_beside_the_value(tab):
    told = rows(tab).filter(has_text="execution.checkpointing.timeout").inner_text()
    assert "10 min" in told
    assert "nobody" in told
    assert "checkpoint" in told.lower().split("\t")[-1]


def test_secrets_are_not_shown(tab):
    assert "swordfish" not in tab.text("main")


def test_options_are_filtered_by_all_words_and_each_has_its_address(tab):
    total = rows(tab).count()
    tab.page.get_by_label("Filter options").fill("checkpointing interval")
    tab.page.wait_for_function(f"document.querySelectorAll('tbody tr').length < {total}")
    assert 0 < rows(tab).count() < 10
    tab.page.get_by_role("link", name="execution.checkpointing.interval", exact=True).click()
    tab.page.wait_for_url("**filter=execution.checkpointing.interval")
    tab.page.reload()
    tab.shows("execution.checkpointing.interval", "tbody")
    tab.page.get_by_label("Filter options").fill("no such words")
    tab.shows("No such option has these words.")


def test_only_those_that_are_set(tab):
    tab.page.get_by_label("only those that somebody has set").check()
    tab.page.wait_for_url("**set=1")
    tab.page.reload()
    tab.shows("3 of ", "label")
    assert tab.page.get_by_label("only those that somebody has set").is_checked()


def test_how_the_job_restarts_and_its_parameters(tab):
    tab.shows("Restarts up to 3 times").shows("monday", "table")


def test_a_job_without_checkpoints_says_so(driver, look):
    job = driver.job(dataclasses.replace(facts(), checkpoints=None)).status("RUNNING")
    look().at(driver, f"{job.path}/options").shows("Checkpointing is not enabled for this job")
