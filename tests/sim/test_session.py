"""Sessions with several jobs in the simulator: what must hold holds, and planted bugs are caught."""

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from penstock.engine.machines.dispatcher import (
    CancelJob,
    CleanUp,
    Dispatcher,
    JobEnded,
    JobRecovered,
    JobStarted,
    JobSubmitted,
    Phase,
)
from penstock.engine.machines.workers import Worker, WorkerPool
from penstock.engine.model.states import JobStatus
from simulation.session.command import summarize
from simulation.session.expectations import SessionName
from simulation.session.world import SessionResult, run_session_seed
from tests.sim.planting import Plants, swap

SEEDS = range(24, 48)
MOST_SEEDS = 60
LIKELY = {
    "a_cancel_is_forgotten_while_the_job_begins": 130,
    "a_closed_session_leaves_its_jobs_running": 4,
    "a_job_with_a_result_is_run_again": 6,
    "a_suspended_job_is_removed_for_good": 34,
    "a_worker_whose_taskmanager_does_not_end_is_kept": 7,
    "idle_workers_make_no_room": 12,
    "the_last_job_that_came_begins_first": 13,
    "the_next_driver_does_not_know_that_a_job_has_a_client": 27,
    "what_a_job_has_dropped_goes_on": 36,
}
"""Seeds that have caught a bug: they are tried first, all others after them."""
plant = Plants(run_session_seed)


def on_event(stack, kind, broken):
    """Have the dispatcher take events of this kind by `broken(dispatcher, step, event, now_ms)`."""
    real = Dispatcher.step

    def step(self, event, now_ms):
        if isinstance(event, kind):
            return broken(self, real, event, now_ms)
        return real(self, event, now_ms)

    swap(stack, Dispatcher, "step", step)


@plant
def a_job_with_a_result_is_run_again(stack):
    def recovered(self, real, event, now_ms):
        return real(self, replace(event, is_dirty=False), now_ms)

    on_event(stack, JobRecovered, recovered)


@plant
def a_known_job_is_taken_again(stack):
    def submitted(self, real, event, now_ms):
        self._jobs.pop(event.job_id, None)
        return real(self, event, now_ms)

    on_event(stack, JobSubmitted, submitted)


@plant
def a_cancel_is_forgotten_while_the_job_begins(stack):
    def cancel(self, real, event, now_ms):
        job = self._jobs.get(event.job_id)
        is_beginning = job is not None and job.phase is Phase.INITIALISING
        found = real(self, event, now_ms)
        if is_beginning:
            job.is_cancelled = False
        return found

    on_event(stack, CancelJob, cancel)


@plant
def nobody_notices_that_a_client_is_silent(stack):
    swap(stack, Dispatcher, "_on_client_lives", lambda *_: None)

    def started(self, real, event, now_ms):
        effects = real(self, event, now_ms)
        self._jobs[event.job_id].client_until_ms = None
        return effects

    on_event(stack, JobStarted, started)


@plant
def signs_of_life_do_not_count(stack):
    swap(stack, Dispatcher, "_on_client_lives", lambda *_: None)


@plant
def the_next_driver_does_not_know_that_a_job_has_a_client(stack):
    def recovered(self, real, event, now_ms):
        return real(self, replace(event, client_timeout_ms=None), now_ms)

    on_event(stack, JobRecovered, recovered)


@plant
def who_waits_does_not_begin_when_another_has(stack):
    def started(self, real, event, now_ms):
        return [effect for effect in real(self, event, now_ms) if not _begins(self, effect)]

    on_event(stack, JobStarted, started)


def _begins(dispatcher, effect):
    job = dispatcher._jobs[effect.job_id]
    if type(effect).__name__ != "Initialise":
        return False
    job.phase = Phase.WAITING
    return True


@plant
def the_last_job_that_came_begins_first(stack):
    real = Dispatcher._begin

    def begin(self, now_ms):
        self._jobs = dict(reversed(self._jobs.items()))
        effects = real(self, now_ms)
        self._jobs = dict(reversed(self._jobs.items()))
        return effects

    swap(stack, Dispatcher, "_begin", begin)


@plant
def a_clean_up_that_failed_is_not_tried_again(stack):
    def failed(self, event, _now_ms):
        self._jobs[event.job_id].failures += 1

    swap(stack, Dispatcher, "_on_clean_up_failed", failed)


@plant
def a_suspended_job_is_removed_for_good(stack):
    def ended(self, real, event, now_ms):
        real(self, event, now_ms)
        return [CleanUp(event.job_id, is_global=True)]

    on_event(stack, JobEnded, ended)


@plant
def a_closed_session_leaves_its_jobs_running(stack):
    real = Dispatcher._wanted_of

    def wanted_of(self, job):
        return real(self, job) if job.is_cancelled else []

    swap(stack, Dispatcher, "_wanted_of", wanted_of)


@plant
def every_job_is_said_to_have_finished(stack):
    def ended(self, real, event, now_ms):
        is_over = event.status.is_globally_terminal
        told = JobStatus.FINISHED if is_over else event.status
        return real(self, replace(event, status=told), now_ms)

    on_event(stack, JobEnded, ended)


@plant
def a_worker_takes_one_slot_more_than_it_has(stack):
    real = Worker.free_slots.fget
    swap(stack, Worker, "free_slots", property(lambda self: real(self) + 1))


@plant
def workers_of_another_kind_serve_too(stack):
    def ready(self, _kind):
        return [one for one in self.workers.values() if one.takes_starts]

    swap(stack, WorkerPool, "_ready", ready)


@plant
def a_job_does_not_wait_for_room_in_a_worker_that_has_it(stack):
    swap(stack, WorkerPool, "_ready_for", lambda _self, start: None)


@plant
def what_a_job_has_dropped_goes_on(stack):
    def dropped(self, event):
        start = self.starts.get(event.start_id)
        if start is not None and start.worker is None:
            del self.starts[event.start_id]

    swap(stack, WorkerPool, "_on_dropped", dropped)


@plant
def a_worker_whose_taskmanager_does_not_end_is_kept(stack):
    real = WorkerPool._end_worker

    def end(self, worker, cause):
        if "does not end" not in cause:
            real(self, worker, cause)

    swap(stack, WorkerPool, "_end_worker", end)


@plant
def idle_workers_stay(stack):
    real = WorkerPool._end_worker

    def end(self, worker, cause):
        if not cause.startswith("idle"):
            real(self, worker, cause)

    swap(stack, WorkerPool, "_end_worker", end)


@plant
def idle_workers_make_no_room(stack):
    swap(stack, WorkerPool, "_on_room_wanted", lambda _self, _event: None)


@plant
def the_slots_of_a_taskmanager_that_is_over_stay_taken(stack):
    real = WorkerPool._on_gone

    def gone(self, event):
        start = self.starts.get(event.start_id)
        if start is not None and start.is_registered:
            return
        real(self, event)

    swap(stack, WorkerPool, "_on_gone", gone)


@cache
def result_of(seed: int) -> SessionResult:
    return run_session_seed(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_must_hold_holds(seed):
    result = result_of(seed)
    assert result.violation is None, result.violation


def test_the_seeds_look_at_every_invariant():
    results = [result_of(seed) for seed in SEEDS]
    seen = sum((result.evaluated for result in results), Counter())
    assert {str(name) for name in SessionName} == {name for name, count in seen.items() if count}
    assert summarize(results).problems() == []
    assert min(result.jobs for result in results) >= 2
    assert max(result.most_at_once for result in results) >= 3
    assert sum(result.drivers for result in results) >= 1.5 * len(results)
    assert sum(result.workers_shared for result in results) >= 3
    assert sum(result.rescales for result in results) >= 20
    assert sum(result.restarts for result in results) >= 50


def test_a_seed_gives_the_same_run_again():
    one, other = (run_session_seed(7, is_traced=True) for _ in range(2))
    assert one.trace == other.trace


@pytest.mark.parametrize("name", plant.names)
def test_a_planted_bug_is_caught(name):
    seeds = (LIKELY.get(name, 0), *range(MOST_SEEDS))
    assert plant.caught(name, seeds) is not None, f"{name} was not caught"
