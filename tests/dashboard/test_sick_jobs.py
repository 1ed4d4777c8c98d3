"""Jobs that are ill: their first screen names operator, subtask and reason, without a click."""

import contextlib

import pytest

from tests.tools.hosting.rest import rest_server
from tests.tools.programs.sick_jobs import (
    late_subtask,
    restarting,
    skewed_key,
    slow_operator,
    stuck_split,
)
from tests.tools.programs.sick_programs import STUCK, Gates

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def server():
    with rest_server() as client:
        yield client


@contextlib.contextmanager
def first_screen(env, server, tab):
    """The tab at the job's address. The job is cancelled behind the block."""
    job = env.execute_async("sick job")
    try:
        yield tab.at(server, f"#/jobs/{job.get_job_id()}")
    finally:
        job.cancel().result()


def test_a_slow_map(server, look):
    with first_screen(slow_operator(), server, look()) as tab:
        tab.shows("'slow' limits the job for ", ".verdict")
        assert "its subtask " in tab.text(".verdict")
        tab.shows("limits the job", ".graph-node.culprit")
        assert tab.text(".graph-node.culprit .graph-name") == "slow"
        tab.shows("busy", "table")


def test_a_skewed_key_for_which_nobody_waits(server, look):
    with first_screen(skewed_key(), server, look()) as tab:
        tab.shows("skewed", "table")
        tab.shows("The job is healthy: ", ".verdict")


def test_a_stuck_split(server, look):
    with first_screen(stuck_split(STUCK), server, look()) as tab:
        tab.shows("by split 'c' of subtask 1 of 'Source: records': it ", ".verdict")
        tab.shows("holds the watermark", "table")


def test_a_checkpoint_straggler(server, look, tmp_path):
    Gates.close("late on the page")
    with first_screen(late_subtask(tmp_path, "late on the page"), server, look()) as tab:
        try:
            tab.shows(" waits for subtask 1 of 'Source: records'", ".verdict")
        finally:
            Gates.open("late on the page")


def test_a_flapping_restart(server, look):
    with first_screen(restarting(), server, look()) as tab:
        tab.shows("Subtask 1 of 'divide' has failed ", ".verdict")
        tab.shows("again and again; the last time with ZeroDivisionError: ", ".verdict")
        tab.shows("ZeroDivisionError", ".failure")
