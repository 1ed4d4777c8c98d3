"""How a job is shown where IPython runs without a notebook, and where nobody records the job. Notebooks: `tests/jobs`."""

import threading

import IPython.display
import pytest

from penstock.common.job_client import JobClient
from penstock.engine.model.program import JobOutcome
from penstock.engine.model.states import JobStatus
from penstock.ops.console import notebook
from tests.tools.hosting.fake_executor import FakeControl
from tests.tools.observation.job_records import JOB, ToldJob, attempt


class Shell:
    """Of a terminal; in a notebook it has a kernel."""


class Recorded(FakeControl):
    """A job that the test tells of."""

    def __init__(self, told) -> None:
        super().__init__(JobOutcome(JobStatus.FINISHED, 12))
        self.job_id = JOB
        self.look = told.now_it_is


@pytest.fixture
def shell():
    return Shell()


@pytest.fixture
def published(monkeypatch, shell):
    """What is displayed: (by MIME type, options)."""
    found = []
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    monkeypatch.setattr(
        IPython.display,
        "publish_display_data",
        lambda bundle, **options: found.append((bundle, options)),
    )
    return found


@pytest.fixture
def threads(monkeypatch):
    """Those that begin. None of them runs."""
    found = []

    def start(thread):
        found.append(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(notebook, "_PAUSE_S", 0)
    return found


@pytest.fixture
def told():
    return ToldJob().status("RUNNING").runs().has(attempt(), busy_ms_per_s=300.0)


def test_a_job_that_nobody_records_is_shown_by_its_status(published, threads):
    client = JobClient(FakeControl(JobOutcome(JobStatus.FINISHED, 12)))
    client._ipython_display_()
    ((bundle, _),) = published
    assert bundle == {"text/plain": "job 0123456789abcdef0123456789abcdef: FINISHED"}
    assert client._repr_html_() is None
    assert repr(client).endswith("status=FINISHED)")


def test_a_terminal_gets_the_job_once_as_lines(published, threads, told):
    JobClient(Recorded(told))._ipython_display_()
    (((text, _), options),) = [(tuple(one.values()), more) for one, more in published]
    assert text.startswith("job 'job': ")
    assert "The job is healthy" in text
    assert (options, threads) == ({}, [])


def test_a_notebook_gets_a_place_that_one_thread_draws_again(published, threads, shell, told):
    shell.kernel = object()
    client = JobClient(Recorded(told))
    client._ipython_display_()
    client._ipython_display_()
    place = {"transient": {"display_id": f"penstock-{JOB}"}}
    assert [options for _, options in published] == [place, place]
    assert len(threads) == 1
    told.status("FINISHED")
    threads[0].run()
    *_, (bundle, options) = published
    assert options == place | {"update": True}
    assert "The job has ended: FINISHED." in bundle["text/html"]


def test_a_job_that_has_ended_is_drawn_once(published, threads, shell, told):
    shell.kernel = object()
    told.status("FINISHED")
    JobClient(Recorded(told))._ipython_display_()
    assert (len(published), threads) == (1, [])


def test_a_fault_of_the_notebook_does_not_reach_the_program(
    monkeypatch, published, threads, shell, told
):
    shell.kernel = object()
    client = JobClient(Recorded(told))
    monkeypatch.setattr(IPython.display, "publish_display_data", fails_when_it_is_drawn_again)
    client._ipython_display_()
    assert client.get_job_execution_result().result().get_net_runtime() == 12


def fails_when_it_is_drawn_again(_bundle, transient, *, update=False):
    if update:
        raise RuntimeError("the kernel is gone")
