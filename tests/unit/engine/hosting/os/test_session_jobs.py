"""The jobs of this process: who holds slots, which of them nobody can use any more."""

import gc
from dataclasses import replace

from penstock.engine.hosting.os.session_jobs import Cell, SessionJob, SessionJobs
from penstock.engine.model.ids import JobId
from penstock.engine.model.states import JobStatus


class Control:
    """A job that ends when it is cancelled and waited for."""

    def __init__(self, name="a") -> None:
        self.job_id = JobId(name)
        self.state = JobStatus.RUNNING
        self.calls: list[str] = []

    def status(self) -> JobStatus:
        return self.state

    def cancel(self) -> None:
        self.calls.append("cancel")
        self.state = JobStatus.CANCELLING

    def wait(self, timeout_s=None) -> None:
        self.calls.append("wait")
        self.state = JobStatus.CANCELED


def job(control, slots=1, cell=None) -> SessionJob:
    return SessionJob(control, f"job {control.job_id}", 0.0, lambda: slots, cell)


def session(*jobs) -> SessionJobs:
    found = SessionJobs()
    for one in jobs:
        found.add(one)
    return found


def test_jobs_that_have_ended_are_not_listed():
    first, second = Control("a"), Control("b")
    jobs = session(job(first), job(second))
    first.state = JobStatus.FINISHED
    assert [one.name for one in jobs.running] == ["job b"]


def test_those_that_hold_slots_are_named_with_what_ends_them():
    idle, busy = Control("a"), Control("b")
    text = session(job(idle, slots=0), job(busy, slots=3)).holders()
    assert "'job b' (3 slots, since " in text
    assert "job a" not in text
    assert "penstock.jobs()[1].cancel()" in text


def test_a_job_of_a_session_is_ended_by_a_command():
    busy = replace(job(Control("0123456789abcdef")), is_submitted=True)
    text = session(busy).holders()
    assert text.endswith("To end one, run `penstock cancel 01234567`.")


def test_a_job_is_not_told_that_it_holds_its_own_slots():
    only = Control("a")
    assert session(job(only)).holders(only.job_id) == ""


def test_a_cell_that_runs_again_ends_the_jobs_of_its_former_run_only():
    former, other, same_run, no_cell = (Control(name) for name in "abcd")
    jobs = session(
        job(former, cell=Cell("one", 1)),
        job(other, cell=Cell("two", 1)),
        job(same_run, cell=Cell("one", 2)),
        job(no_cell),
    )
    said: list[str] = []
    jobs.let_go_of_former_run(Cell("one", 2), said.append)
    assert former.calls == ["cancel", "wait"]
    assert [one.calls for one in (other, same_run, no_cell)] == [[], [], []]
    assert len(said) == 1
    assert "'job a'" in said[0]


def test_outside_of_notebooks_nothing_is_ended():
    running = Control()
    session(job(running, cell=Cell("one", 1))).let_go_of_former_run(None, lambda _text: None)
    assert running.calls == []


def test_jobs_whose_iterators_only_wait_for_the_collector_end_before_a_job_is_refused():
    class Iterator:
        def __init__(self, control) -> None:
            self.itself = self
            self.control = control

        def __del__(self) -> None:
            self.control.cancel()

    forgotten, kept = Control("a"), Control("b")
    jobs = session(job(forgotten), job(kept))
    gc.collect()
    Iterator(forgotten)
    assert forgotten.calls == []
    assert jobs.drop_forgotten()
    assert forgotten.calls == ["cancel", "wait"]
    assert kept.calls == []
    assert not jobs.drop_forgotten()
