"""Second attempts of slow subtasks, by docs/spec/elasticity.md#second-attempts. Six of eight subtasks finish; the baseline is 30 s."""

import pytest

from penstock.machines.books.job_settings import JobSettings
from penstock.machines.execution.slow_tasks import SlowTaskSettings, SpeculationSettings
from penstock.machines.failover.restart_backoff import FixedDelayRestart, NoRestart
from penstock.model.errors import ConfigurationError
from penstock.model.ids import AllocationId, AttemptId, ExecutionVertexId, ResourceId, VertexId
from penstock.model.messages import (
    AnswerOffers,
    BlockNodes,
    CancelJob,
    CancelTask,
    Committable,
    DeclareRequirements,
    DeployTask,
    ExecutionStateChanged,
    FinalizeJob,
    FreeSlot,
    NotEnoughResources,
    SlotFreed,
    SlowSubtasks,
    SuspendJob,
    TaskReported,
    TaskStateChanged,
)
from penstock.model.states import ExecutionState as S
from penstock.model.states import JobStatus
from tests.tools.machines.job_bench import BROKEN, USER, Bench, statuses
from tests.tools.machines.job_graphs import job_graph, word_count

COPY = VertexId("Copy")
SLOW = "Copy[7]"


def settings_of(most: int = 2, block_ms: int = 60_000, backoff=NoRestart) -> JobSettings:
    speculation = SpeculationSettings(
        frozenset({COPY}), SlowTaskSettings(0.75, 1.5, 30_000), 1_000, most, block_ms
    )
    return JobSettings(speculation=speculation, make_backoff=backoff)


class Copying(Bench):
    """A vertex of eight subtasks, two in each TaskManager, on hosts of their own. Six have finished after 20 s; unless `is_large`,
    their TaskManagers are gone then.
    """

    def __init__(self, settings: JobSettings | None = None, *, is_large: bool = False) -> None:
        super().__init__(job_graph({"Copy": 8}, []), settings or settings_of())
        self.start()
        for number in range(4):
            self.offer(f"tm{number}", 2)
        self.run_all()
        self.now_ms = 20_000
        self.finish(*(f"Copy[{i}]" for i in range(6)))
        for number in range(0 if is_large else 3):
            self.lose(f"tm{number}")

    def slow(self) -> list:
        """The next check comes after 30 s."""
        self.now_ms = max(self.now_ms, 30_000)
        return self.fire("slow-tasks")

    def tell(self, number: int, state: S, failure=None, subtask: int = 7) -> list:
        """A report of this attempt, whether it counts or not."""
        attempt_id = AttemptId(ExecutionVertexId(COPY, subtask), number)
        done = (Committable(1, f"attempt {number}"),) if state is S.FINISHED else ()
        report = TaskStateChanged(attempt_id, state, failure, done)
        return self.step(TaskReported(report, self.now_ms))

    def second_runs(self) -> None:
        """The slow ones are 6 and 7. They have second attempts on a TaskManager of another host."""
        self.slow()
        self.offer("new", 2)
        for subtask in (6, 7):
            self.tell(1, S.INITIALIZING, subtask=subtask)
            self.tell(1, S.RUNNING, subtask=subtask)


def of(effects: list, kind: type) -> list:
    return [one for one in effects if isinstance(one, kind)]


def attempt_numbers(effects: list, kind: type) -> list[tuple[int, int]]:
    found = of(effects, kind)
    ids = [one.deployment.attempt_id if kind is DeployTask else one.attempt_id for one in found]
    return [(one.subtask, one.attempt) for one in ids]


def test_a_slow_subtask_gets_a_second_attempt_on_another_node() -> None:
    bench = Copying()
    effects = bench.slow()
    assert of(effects, BlockNodes) == [
        BlockNodes(("host-tm3",), 90_000, "a subtask is slow", 30_000)
    ]
    assert of(effects, DeployTask) == []
    deployed = bench.offer("new", 2)
    assert attempt_numbers(deployed, DeployTask) == [(6, 1), (7, 1)]
    assert all(one.deployment.may_have_rivals for one in of(deployed, DeployTask))
    assert bench.vertex(SLOW).state is S.RUNNING
    assert bench.vertex(SLOW).execution.attempt_id.attempt == 0


def test_free_slots_of_other_nodes_serve_it_at_once_and_those_of_the_blocked_one_never() -> None:
    bench = Copying(is_large=True)
    bench.now_ms = 25_000
    bench.finish("Copy[6]")  # Its slot is on the TaskManager of the slow one.
    effects = bench.slow()
    [deployed] = of(effects, DeployTask)
    assert deployed.resource_id in {"tm0", "tm1", "tm2"}
    freed = of(effects, FreeSlot)
    assert [one.resource_id for one in freed] == ["tm3"]


def test_a_blocked_node_may_offer_nothing_until_its_time_is_over() -> None:
    bench = Copying()
    bench.slow()
    [*answers] = of(bench.offer("tm3", 3), AnswerOffers)
    assert [one.rejected for one in answers] == [(AllocationId("tm3/2"),), ()]
    assert answers[1].accepted == (AllocationId("tm3/0"), AllocationId("tm3/1"))
    bench.finish("Copy[6]")
    bench.now_ms = 90_000
    bench.tell(1, S.RUNNING)
    bench.job.books.attempts.rivals.blocklist.remove_ended(90_000)
    assert attempt_numbers(bench.offer("tm3", 3), DeployTask) == [(7, 1)]


def test_without_a_block_the_same_node_may_serve_it() -> None:
    bench = Copying(settings_of(block_ms=0))
    assert of(bench.slow(), BlockNodes) == []
    assert attempt_numbers(bench.offer("tm3", 4), DeployTask) == [(6, 1), (7, 1)]


def told_slow(effects) -> list[int]:
    return [one.count for one in effects if isinstance(one, SlowSubtasks)]


def test_how_many_subtasks_are_slow_is_told_when_it_changes() -> None:
    bench = Bench(job_graph({"Copy": 8}, []), settings_of(block_ms=0))
    assert told_slow(bench.start()) == [0]
    for number in range(4):
        bench.offer(f"tm{number}", 2)
    bench.run_all()
    bench.now_ms = 20_000
    bench.finish(*(f"Copy[{i}]" for i in range(6)))
    bench.now_ms = 29_999
    assert told_slow(bench.fire("slow-tasks")) == []
    bench.now_ms = 30_000
    assert told_slow(bench.fire("slow-tasks")) == [2]
    assert told_slow(bench.fire("slow-tasks")) == []
    bench.finish(SLOW)
    assert told_slow(bench.fire("slow-tasks")) == [1]


def test_none_is_slow_before_the_lower_bound() -> None:
    bench = Copying()
    bench.now_ms = 29_999
    assert of(bench.fire("slow-tasks"), DeployTask) == []
    assert bench.slow() != []


def test_the_first_to_finish_wins_and_the_other_is_cancelled() -> None:
    bench = Copying()
    bench.second_runs()
    effects = bench.tell(1, S.FINISHED)
    assert attempt_numbers(effects, CancelTask) == [(7, 0)]
    assert bench.vertex(SLOW).state is S.FINISHED
    assert bench.vertex(SLOW).execution.attempt_id.attempt == 1
    bench.tell(0, S.FINISHED)  # Too late.
    [finalized] = of(bench.tell(0, S.FINISHED, subtask=6), FinalizeJob)
    payloads = [one.payload for one in finalized.committables[6:]]
    assert payloads == ["attempt 0", "attempt 1"]


def test_if_the_first_attempt_wins_the_second_one_is_cancelled() -> None:
    bench = Copying()
    bench.second_runs()
    effects = bench.tell(0, S.FINISHED)
    assert attempt_numbers(effects, CancelTask) == [(7, 1)]
    ended = bench.tell(1, S.CANCELED)
    [changed] = of(ended, ExecutionStateChanged)
    assert changed.is_concurrent
    assert changed.new is S.CANCELED
    assert bench.vertex(SLOW).execution.committables[0].payload == "attempt 0"


def test_what_waits_for_a_slot_is_given_up_when_the_first_attempt_finishes() -> None:
    bench = Copying()
    asked = bench.slow()
    assert of(asked, DeclareRequirements)[-1].slots == 4
    ended = bench.finish("Copy[6]", SLOW)
    assert of(ended, DeclareRequirements)[-1].slots == 0


def test_a_failed_attempt_leaves_the_work_to_the_other_one() -> None:
    bench = Copying(settings_of(backoff=lambda: FixedDelayRestart(1, 0)))
    bench.second_runs()
    effects = bench.tell(0, S.FAILED, USER)
    assert statuses(effects) == []
    assert bench.vertex(SLOW).execution.attempt_id.attempt == 1
    assert bench.vertex(SLOW).state is S.RUNNING
    assert len(bench.job.exceptions) == 1
    bench.tell(1, S.FINISHED)
    assert bench.vertex(SLOW).state is S.FINISHED


def test_a_second_attempt_that_fails_restarts_nothing() -> None:
    bench = Copying(settings_of(backoff=lambda: FixedDelayRestart(1, 0)))
    bench.second_runs()
    assert statuses(bench.tell(1, S.FAILED, USER)) == []
    assert attempt_numbers(bench.slow(), DeployTask) == [(7, 2)]


def test_a_failure_counts_for_the_restart_strategy_though_another_attempt_goes_on() -> None:
    bench = Copying()  # No restart is allowed.
    bench.second_runs()
    assert statuses(bench.tell(1, S.FAILED, USER)) == ["FAILING"]
    bench.confirm_cancels()
    bench.tell(1, S.CANCELED, subtask=6)
    assert bench.job.status is JobStatus.FAILED


def test_when_the_last_attempt_fails_the_region_restarts_with_a_new_number() -> None:
    bench = Copying(settings_of(backoff=lambda: FixedDelayRestart(2, 0)))
    bench.second_runs()
    bench.tell(0, S.FAILED, BROKEN)
    assert statuses(bench.tell(1, S.FAILED, BROKEN)) == ["RESTARTING"]
    effects = bench.fire("restart")
    assert attempt_numbers(effects, DeployTask) == [(7, 2)]


def test_a_restart_cancels_all_attempts_of_the_subtask() -> None:
    bench = Copying(settings_of(backoff=lambda: FixedDelayRestart(1, 0)))
    bench.slow()  # Second attempts wait for their slots.
    effects = bench.tell(0, S.FAILED, BROKEN)
    assert statuses(effects) == ["RESTARTING"]
    assert bench.job.books.attempts.rivals.of(bench.vertex(SLOW)) == []


def test_a_lost_taskmanager_of_the_slow_one_leaves_the_second_attempts_alone() -> None:
    bench = Copying(settings_of(backoff=lambda: FixedDelayRestart(1, 0)))
    bench.second_runs()
    assert statuses(bench.lose("tm3")) == []
    assert {bench.vertex(f"Copy[{i}]").execution.attempt_id.attempt for i in (6, 7)} == {1}
    bench.tell(1, S.FINISHED)
    assert of(bench.tell(1, S.FINISHED, subtask=6), FinalizeJob) != []


def test_a_lost_taskmanager_of_second_attempts_is_one_failure() -> None:
    bench = Copying(settings_of(backoff=lambda: FixedDelayRestart(1, 0)))
    bench.second_runs()
    assert statuses(bench.lose("new")) == []
    assert len(bench.job.exceptions) == 1
    assert bench.vertex(SLOW).execution.attempt_id.attempt == 0


def test_a_lost_slot_ends_what_runs_in_it_alone() -> None:
    bench = Copying(settings_of(backoff=lambda: FixedDelayRestart(3, 0)))
    bench.second_runs()
    rival = bench.job.books.attempts.rivals.of(bench.vertex(SLOW))[0]
    bench.step(SlotFreed(ResourceId("new"), rival.slot.slot_index, rival.slot.allocation_id))
    assert bench.job.books.attempts.rivals.of(bench.vertex(SLOW)) == []
    bench.tell(0, S.FAILED, BROKEN, subtask=6)
    other = bench.vertex("Copy[6]")
    slot = bench.job.books.attempts.rivals.seat_of(other)
    bench.step(SlotFreed(ResourceId("new"), slot.slot_index, slot.allocation_id))
    assert bench.job.status is JobStatus.RESTARTING


def test_without_room_it_is_given_up_and_asked_for_again_after_a_minute() -> None:
    bench = Copying()
    bench.slow()
    given_up = bench.step(NotEnoughResources(8, "full", bench.now_ms, is_final=True))
    assert of(given_up, DeclareRequirements)[-1].slots == 2
    assert of(bench.slow(), DeclareRequirements) == []
    bench.now_ms = 89_999
    assert of(bench.slow(), DeclareRequirements) == []
    bench.now_ms = 90_000
    assert of(bench.slow(), DeclareRequirements)[-1].slots == 4


def test_a_subtask_has_no_more_attempts_than_asked_for() -> None:
    bench = Copying(settings_of(most=3))
    bench.slow()
    assert attempt_numbers(bench.offer("new", 4), DeployTask) == [(6, 1), (6, 2), (7, 1), (7, 2)]
    bench.now_ms += 60_000
    assert of(bench.slow(), DeployTask) == []
    assert attempt_numbers(bench.tell(2, S.FINISHED), CancelTask) == [(7, 1), (7, 0)]


def test_cancelling_the_job_cancels_all_attempts() -> None:
    for event in (CancelJob, SuspendJob):
        bench = Copying()
        bench.second_runs()
        effects = bench.step(event(bench.now_ms))
        assert sorted(attempt_numbers(effects, CancelTask)) == [(6, 0), (6, 1), (7, 0), (7, 1)]


def test_a_vertex_that_was_not_named_never_has_two_attempts() -> None:
    bench = Bench(word_count(), settings_of())
    bench.start()
    assert not any(timer.startswith("slow-tasks") for timer in bench.timers)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"check_interval_ms": 0}, "at least 1 ms"),
        ({"most_attempts": 0}, "at least 1"),
        ({"block_ms": -1}, "at least 0 ms"),
    ],
)
def test_settings_out_of_their_range_are_refused(wrong, told) -> None:
    with pytest.raises(ConfigurationError, match=told):
        SpeculationSettings(**wrong)
