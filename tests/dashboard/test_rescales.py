"""The page of rescales, the dialog that asks for one, and what the autoscaler tells."""

import contextlib
from functools import partial

import pytest

from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.machines.rescaling.adaptive_settings import AdaptiveSettings
from penstock.engine.model.elastic import (
    Change,
    Rescale,
    RescaleCause,
    RescaleEnd,
    RescaleOutcome,
    Rescales,
    StateSpan,
)
from penstock.ops.jobs.snapshots import ElasticFacts
from tests.dashboard.test_job_pages import running
from tests.tools.hosting.rest import SETTINGS, rest_server
from tests.tools.observation.job_records import SINK, SOURCE
from tests.tools.programs.autoscaled_programs import slow, submitted
from tests.tools.programs.checkpoint_programs import sums_to_file
from tests.tools.programs.environments import RESTARTS, minicluster_environment
from tests.tools.programs.rescaled_programs import SharedSplits
from tests.tools.programs.user_functions import same

pytestmark = pytest.mark.browser
ELASTIC = {
    "web.adaptive-scheduler.rescale-history.size": "5",
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "0 s",
    "execution.checkpointing.interval": "1 h",
}


@pytest.fixture
def server():
    with rest_server() as client:
        yield client


@contextlib.contextmanager
def job_of(client, stage):
    """It has ended behind the block."""
    try:
        yield f"#/jobs/{client.get_job_id()}/rescales"
    finally:
        stage.gate.set()
        client.cancel().result()


def rescale(name, began_ms, cause, **more):
    vertices = {SOURCE: Change(2, 2, 2, 2), SINK: Change(4, 1, 2, 4)}
    known = {"vertices": vertices, "group_slots": {}, "group_of_vertex": {}} | more
    return Rescale(name, "q", 1, cause, began_ms, **known)


def told(job):
    """One that is done, one that failed, and one under way; two more are not kept."""
    now = job.now
    done = rescale(
        "r1",
        now,
        RescaleCause.UPDATE_REQUIREMENT,
        states=(StateSpan("Executing", now, now + 20), StateSpan("Restarting", now + 20, now + 90)),
        end=RescaleEnd.SUCCEEDED,
        ended_ms=now + 90,
    )
    failed = rescale(
        "r2",
        now + 100,
        RescaleCause.NEW_RESOURCE_AVAILABLE,
        states=(StateSpan("Executing", now + 100, now + 130, "checkpoint 7 expired"),),
        end=RescaleEnd.EXCEPTION_OCCURRED,
        ended_ms=now + 130,
    )
    going_on = rescale("r3", now + 200, RescaleCause.RECOVERABLE_FAILOVER)
    counts = {RescaleOutcome.COMPLETED: 3, RescaleOutcome.FAILED: 1}
    return job.tell(Rescales((done, failed, going_on), counts, {}, True))


def test_a_job_is_rescaled_from_its_page(server, look, tmp_path, stage):
    """It stands still meanwhile, so that its page stays as it is."""
    cluster = MiniCluster(parallelism=2)
    env = minicluster_environment(cluster, RESTARTS | ELASTIC | SETTINGS)
    sums_to_file(env, tmp_path / "out", SharedSplits(stage.name, 6, 40, 20), same)
    client = env.execute_async("sums")
    stage.wait_until_held(6)
    with job_of(client, stage) as page:
        tab = look().at(server, page)
        tab.allowed = ["status of 4"]
        tab.shows("Nobody has asked to rescale this job.")
        tab.page.get_by_role("button", name="Rescale").click()
        most = tab.page.get_by_label("Most parallelism")
        most.first.wait_for()
        assert tab.violations() == []
        for field in most.all():
            field.fill("100000")
        send = tab.page.locator("dialog").get_by_role("button", name="Rescale")
        send.click()  # The browser says that it is too many.
        for field in most.all():
            field.fill("30000")
        send.click()
        tab.shows("max parallelism", "dialog .bad-text")
        for field in most.all():
            field.fill("3")
        send.click()
        tab.shows("The driver has recorded the bounds.", "dialog")
        tab.page.get_by_role("button", name="Close").click()
        tab.shows("Other bounds were asked for", "section").shows("COMPLETED", ".badge")
        first = (
            tab.page.get_by_role("region", name="What the vertices got").get_by_role("row").nth(1)
        )
        assert first.inner_text().split("\t")[1:] == ["2", "3", "1", "3"]
        assert tab.violations() == []


def test_the_autoscaler_says_what_it_measured_and_decided(server, look, tmp_path, stage):
    source = SharedSplits(stage.name, 6, 2000, 2000)
    client = submitted(tmp_path / "out", source, partial(slow, stage.name), 1, ELASTIC | SETTINGS)
    with job_of(client, stage) as page:
        tab = look().at(server, page)
        tab.shows("Autoscaler", "section").shows("Could process", "table").shows(
            "slots; ", ".decision"
        )
        assert "subtasks: " in tab.text(".decision li")
        assert tab.violations() == []


def test_each_rescale_says_why_it_began_and_how_it_ended(driver, look):
    job = told(running(driver))
    tab = look().at(driver, f"{job.path}/rescales")
    tab.shows("Shown: 3 of 5 rescales").shows("There were more slots", "section")
    tab.shows("checkpoint 7 expired", ".bad-text").shows("it is under way")
    assert tab.violations() == []
    assert not tab.is_wider_than_its_window()


def test_a_job_that_cannot_be_rescaled_has_no_button(driver, look):
    job = running(driver, elastic=ElasticFacts(AdaptiveSettings(is_reactive=True)))
    tab = look().at(driver, job.path).shows("Stop with savepoint", "button")
    assert tab.page.get_by_role("button", name="Rescale").count() == 0


def test_a_driver_that_forbids_rescales_offers_none(start_driver, look):
    driver = start_driver(**{"web.rescale.enable": "false"})
    tab = look().at(driver, running(driver).path).shows("Stop with savepoint", "button")
    assert tab.page.get_by_role("button", name="Rescale").count() == 0
