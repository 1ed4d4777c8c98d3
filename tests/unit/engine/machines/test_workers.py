"""Which worker hosts a TaskManager, who comes first, and when a worker ends: by docs/internals/workers.md."""

import pytest

from penstock.engine.machines.workers import (
    END_WITHIN_MS,
    SIZED_FIRST_MS,
    WorkerPool,
    WorkerState,
)
from penstock.engine.model.ids import JobId
from penstock.engine.model.messages.workers import (
    DropStart,
    EndWorker,
    HostedGone,
    HostStart,
    LaunchWorker,
    RoomWanted,
    StartDropped,
    StartEnded,
    StartId,
    StartRegistered,
    StartWanted,
    WorkerConnected,
    WorkerId,
    WorkerKind,
    WorkerLost,
    WorkersTick,
    WorkerUnfit,
)
from penstock.engine.model.slot_size import slot_size
from simulation.bookkeeping import check_workers

KIND = WorkerKind("a", 2)
OTHER = WorkerKind("b", 2)
LARGE = WorkerKind("c", 1, slot_size({"cpu": 2}))
IDLE_MS = 30_000
FIRST, SECOND = WorkerId("worker-1"), WorkerId("worker-2")


class Pool:
    """A machine that is checked after each step, and a clock."""

    def __init__(self):
        self.machine = WorkerPool()
        self.now_ms = 0

    def step(self, make, *arguments, **named):
        effects = self.machine.step(make(*arguments, **named))
        check_workers(self.machine)
        return effects

    def want(self, name, slots=1, kind=KIND, job=None, bound=None, idle_ms=IDLE_MS, sized=0):
        job_id = JobId(job or name[0])
        bound = bound or slots
        return self.step(
            StartWanted, StartId(name), job_id, kind, slots, bound, idle_ms, self.now_ms, sized
        )

    def connect(self, worker_id=FIRST):
        return self.step(WorkerConnected, worker_id, self.now_ms)

    def gone(self, name, *, was_refused=False):
        return self.step(HostedGone, StartId(name), "over", was_refused, self.now_ms)

    def drop(self, name):
        return self.step(StartDropped, StartId(name), "dropped", self.now_ms)

    def lose(self, worker_id=FIRST):
        return self.step(WorkerLost, worker_id, "lost", self.now_ms)

    def tick(self, after_ms):
        self.now_ms += after_ms
        return self.step(WorkersTick, self.now_ms)


@pytest.fixture
def pool():
    return Pool()


@pytest.fixture
def warm(pool):
    """One worker that has served a job, and is idle."""
    pool.want("a1")
    pool.connect()
    pool.gone("a1")
    return pool


def test_the_first_start_launches_a_worker_and_is_hosted_when_that_connects(pool):
    assert pool.want("a1") == [LaunchWorker(FIRST, KIND)]
    assert pool.connect() == [HostStart(FIRST, StartId("a1"), 1)]


def test_a_warm_worker_serves_the_next_job_at_once(warm):
    assert warm.want("b1", slots=2) == [HostStart(FIRST, StartId("b1"), 2)]


def test_two_jobs_share_the_slots_of_a_worker(pool):
    pool.want("a1")
    assert pool.want("b1") == []
    assert pool.connect() == [
        HostStart(FIRST, StartId("a1"), 1),
        HostStart(FIRST, StartId("b1"), 1),
    ]
    assert pool.want("c1") == [LaunchWorker(SECOND, KIND)]


def test_another_kind_never_shares(warm):
    assert warm.want("b1", kind=OTHER) == [LaunchWorker(SECOND, OTHER)]


def test_the_fullest_worker_that_suffices_is_taken(pool):
    pool.want("a1", slots=2)
    pool.want("b1", slots=2)
    pool.connect(FIRST)
    pool.connect(SECOND)
    pool.gone("a1")
    pool.gone("b1")
    pool.want("c1")
    assert pool.want("d1") == [HostStart(FIRST, StartId("d1"), 1)]
    assert pool.machine.fits(KIND, [2, 1, 1]) == 1


def test_starts_are_served_as_they_came(pool):
    pool.want("a1", slots=2)
    pool.want("b1", slots=2)
    assert pool.connect(SECOND)[0] == HostStart(SECOND, StartId("a1"), 2)
    assert pool.connect(FIRST) == [HostStart(FIRST, StartId("b1"), 2)]


def test_what_jobs_need_to_run_comes_before_what_they_would_like(pool):
    pool.want("a1", slots=2, bound=2)
    pool.connect(FIRST)
    pool.want("a2", slots=2, job="a", bound=2)
    pool.want("a3", slots=2, job="a", bound=2)
    pool.want("b1", slots=2, bound=2)
    assert pool.connect(SECOND) == [HostStart(SECOND, StartId("b1"), 2)]


def test_beyond_their_bounds_jobs_take_turns(pool):
    for name in ("a1", "b1"):
        pool.want(name, slots=2, bound=2)
    pool.connect(FIRST)
    pool.connect(SECOND)
    for name in ("a2", "a3", "b2", "b3"):
        pool.want(name, slots=2, job=name[0], bound=2)
    served = []
    for number in range(3, 7):
        served += [one.start_id for one in pool.connect(WorkerId(f"worker-{number}"))]
    assert served == ["a2", "b2", "a3", "b3"]


def test_a_worker_that_nobody_uses_ends_after_the_timeout_of_its_last_job(warm):
    assert warm.tick(IDLE_MS - 1) == []
    ended = warm.tick(1)
    assert [type(one) for one in ended] == [EndWorker]
    assert warm.want("b1") == [LaunchWorker(SECOND, KIND)]


def test_a_worker_that_is_used_does_not_end(warm):
    warm.want("b1")
    assert warm.tick(10 * IDLE_MS) == []


def test_without_a_timeout_a_worker_ends_with_its_last_job(pool):
    pool.want("a1", idle_ms=0)
    pool.want("b1", idle_ms=0)
    pool.connect()
    assert pool.gone("a1") == [StartEnded(StartId("a1"), "over")]
    assert [type(one) for one in pool.gone("b1")] == [StartEnded, EndWorker]


def test_a_dropped_start_is_over_when_its_worker_says_so(pool):
    pool.want("a1", slots=2)
    pool.connect()
    assert pool.drop("a1") == [DropStart(FIRST, StartId("a1"), "dropped")]
    assert pool.want("b1") == [LaunchWorker(SECOND, KIND)], "its slots are not free yet"
    assert HostStart(FIRST, StartId("b1"), 1) in pool.gone("a1")


def test_a_dropped_start_that_is_never_over_costs_its_worker(pool):
    pool.want("a1")
    pool.connect()
    pool.drop("a1")
    assert pool.tick(END_WITHIN_MS - 1) == []
    assert [type(one) for one in pool.tick(1)] == [EndWorker]


def test_a_start_that_waits_is_dropped_with_the_worker_that_was_for_it(pool):
    pool.want("a1")
    assert [type(one) for one in pool.drop("a1")] == [EndWorker]
    assert [type(one) for one in pool.connect()] == [EndWorker], "it came all the same"


def test_a_worker_that_does_not_come_fails_the_starts_that_wait_for_it_and_no_others(pool):
    pool.want("a1", slots=2)
    pool.want("b1", slots=2)
    assert pool.lose(FIRST) == [StartEnded(StartId("a1"), "lost")]
    assert pool.connect(SECOND) == [HostStart(SECOND, StartId("b1"), 2)]


def test_a_worker_that_died_while_idle_costs_the_next_job_nothing_but_time(warm):
    warm.want("b1")
    assert warm.lose() == [LaunchWorker(SECOND, KIND)]
    assert warm.connect(SECOND) == [HostStart(SECOND, StartId("b1"), 1)]


def test_all_jobs_of_a_lost_worker_are_told(warm):
    for name in ("b1", "c1"):
        warm.want(name)
        warm.step(StartRegistered, StartId(name))
    assert warm.lose() == [StartEnded(StartId("b1"), "lost"), StartEnded(StartId("c1"), "lost")]


def test_a_worker_in_which_something_is_left_serves_nobody_else(pool):
    pool.want("a1")
    pool.want("b1")
    pool.connect()
    assert pool.step(WorkerUnfit, FIRST, "a thread", 0) == []
    pool.gone("a1")
    assert pool.want("c1") == [LaunchWorker(SECOND, KIND)]
    assert [type(one) for one in pool.gone("b1")] == [StartEnded, EndWorker]


def test_a_refused_start_goes_to_another_worker_and_is_not_told_as_over(warm):
    warm.want("b1")
    effects = warm.gone("b1", was_refused=True)
    assert [type(one) for one in effects] == [EndWorker, LaunchWorker]
    assert warm.connect(SECOND) == [HostStart(SECOND, StartId("b1"), 1)]


def test_idle_workers_make_room_those_first_that_are_idle_longest(pool):
    for number, name in enumerate("ab", 1):
        pool.want(name, slots=2)
        pool.connect(WorkerId(f"worker-{number}"))
    pool.gone("b")
    pool.now_ms += 1
    pool.gone("a")
    ended = pool.step(RoomWanted, 1, None, pool.now_ms)
    assert [one.worker_id for one in ended] == [SECOND]
    assert [one.worker_id for one in pool.machine.idle] == [FIRST]


def test_workers_of_the_wanted_kind_stay_and_so_do_those_in_use(warm):
    warm.want("b1", kind=OTHER)
    warm.connect(SECOND)
    assert warm.step(RoomWanted, 5, KIND, 0) == []
    assert [one.worker_id for one in warm.step(RoomWanted, 5, OTHER, 0)] == [FIRST]
    assert warm.machine.workers[SECOND].state is WorkerState.READY


def test_small_starts_wait_for_the_large_ones_of_their_job_and_leave_idle_workers_alone(warm):
    """An idle worker that a small one would take may sit where a large one fits: Spark cannot move it."""
    assert warm.want("b1", sized=1) == []
    assert warm.want("b2", kind=LARGE) == [LaunchWorker(SECOND, LARGE)]
    assert warm.connect(SECOND) == [
        HostStart(SECOND, StartId("b2"), 1),
        HostStart(FIRST, StartId("b1"), 1),
    ]


def test_an_idle_worker_in_the_place_of_a_large_one_is_let_go(warm):
    warm.want("b1", sized=1)
    warm.want("b2", kind=LARGE)
    ended = warm.step(RoomWanted, 1, None, 0)
    assert [one.worker_id for one in ended] == [FIRST]
    warm.lose(FIRST)
    warm.connect(SECOND)
    assert StartId("b1") in warm.machine.starts
    third = warm.machine.starts[StartId("b1")].planned
    assert warm.connect(third) == [HostStart(third, StartId("b1"), 1)]


def test_small_starts_of_other_jobs_do_not_wait(warm):
    warm.want("b1", sized=1)
    assert warm.want("c1") == [HostStart(FIRST, StartId("c1"), 1)]


def test_a_large_one_that_never_comes_is_not_waited_for_for_ever(warm):
    warm.want("b1", sized=1)
    assert warm.tick(SIZED_FIRST_MS - 1) == []
    assert warm.tick(1) == [HostStart(FIRST, StartId("b1"), 1)]


def test_a_small_start_that_waits_for_a_large_one_can_be_dropped(warm):
    warm.want("b1", sized=1)
    assert warm.drop("b1") == []
    assert warm.machine.starts == {}


def test_workers_that_a_waiting_start_can_use_make_room_last(pool):
    pool.want("a1", slots=2)
    pool.connect(FIRST)
    pool.want("b1", slots=2, kind=OTHER)
    pool.connect(SECOND)
    pool.gone("a1")
    pool.now_ms += 1
    pool.gone("b1")
    pool.want("c1", sized=1)
    assert [one.worker_id for one in pool.step(RoomWanted, 1, None, pool.now_ms)] == [SECOND]
