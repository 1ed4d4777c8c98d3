"""Spark's tasks as attempts of ours: of whom they are, how they are numbered, what of them is told and when.

Expectations: Spark numbers tasks as they begin, over the whole application; a stage is run again under the same id with another
attempt, or, in another job, under another id.
"""

from types import SimpleNamespace

import pytest

from penstock.engine.hosting.spark.batch.spark_body import SubtaskFailed
from penstock.engine.hosting.spark.batch.spark_runner import SparkAttempts
from penstock.engine.model.ids import VertexId
from penstock.engine.model.messages import FailureInfo
from penstock.engine.model.states import ExecutionState as S

A, B = VertexId("a"), VertexId("b")
WRONG = FailureInfo("ValueError", "wrong", is_user_code=True)


def scala(values):
    return SimpleNamespace(size=lambda: len(values), apply=values.__getitem__)


class Task:
    def __init__(self, number, partition, status="RUNNING", error=None, *, speculative=False):
        self.taskId = lambda: number
        self.partitionId = lambda: partition
        self.speculative = lambda: speculative
        self.errorMessage = lambda: SimpleNamespace(
            isDefined=lambda: error is not None, get=lambda: error
        )
        self.becomes(status)

    def becomes(self, status):
        self.status = lambda: status


class Spark:
    """A SparkContext and its status store. `jobs`: stages of each group's job; `rdds` and `tasks`: of stages.
    `when_empty`: called when the queue of Spark's events has become empty.
    """

    def __init__(self) -> None:
        self.jobs: dict = {}
        self.rdds: dict = {}
        self.tasks: dict = {}
        self.when_empty = lambda: None
        bus = SimpleNamespace(waitUntilEmpty=lambda _ms: self.when_empty())
        context = SimpleNamespace(statusStore=lambda: self, listenerBus=lambda: bus)
        self._jsc = SimpleNamespace(sc=lambda: context)

    def statusTracker(self):
        return self

    def getJobIdsForGroup(self, group):
        return [group] if group in self.jobs else []

    def getJobInfo(self, job_id):
        return SimpleNamespace(stageIds=self.jobs[job_id])

    def lastStageAttempt(self, stage_id):
        attempts = [attempt for stage, attempt in self.tasks if stage == stage_id]
        return SimpleNamespace(
            rddIds=lambda: scala(self.rdds[stage_id]), attemptId=lambda: max(attempts, default=0)
        )

    def taskList(self, stage_id, stage_attempt, _most):
        return scala(self.tasks.get((stage_id, stage_attempt), []))


@pytest.fixture
def spark():
    """A's stage computes the RDD 5, B's 9."""
    found = Spark()
    found.jobs = {"job-a": [1]}
    found.rdds = {1: [4, 5]}
    found.attempts = SparkAttempts(found)
    found.attempts.expect(A, 5)
    found.attempts.expect(B, 9)
    return found


def looked(spark, group):
    told = []
    spark.attempts.look(group, told.append)
    return [(one.vertex_id, one.subtask, one.attempt, one.state) for one in told]


def test_each_change_of_each_attempt_is_told_once(spark):
    task = Task(7, 0)
    spark.tasks[1, 0] = [task, Task(8, 1)]
    assert looked(spark, "job-a") == [(A, 0, 0, S.RUNNING), (A, 1, 0, S.RUNNING)]
    assert looked(spark, "job-a") == []
    task.becomes("SUCCESS")
    assert looked(spark, "job-a") == [(A, 0, 0, S.FINISHED)]
    assert looked(spark, "job-a") == []


def test_a_failure_is_what_the_subtask_told(spark):
    text = f"Job aborted: {SubtaskFailed(WRONG)} and more"
    spark.tasks[1, 0] = [Task(7, 0, "FAILED", text), Task(8, 1, "FAILED", "executor lost")]
    told: list = []
    spark.attempts.look("job-a", told.append)
    assert told[0].failure == WRONG
    assert (told[1].failure.kind, told[1].failure.text) == ("SparkTaskFailed", "executor lost")


def test_attempts_are_numbered_as_they_begin_over_all_attempts_of_a_stage(spark):
    spark.tasks[1, 0] = [Task(8, 1), Task(7, 0, "FAILED", "x"), Task(9, 0, speculative=True)]
    spark.tasks[1, 1] = [Task(12, 0)]
    told: list = []
    spark.attempts.look("job-a", told.append)
    assert [(one.subtask, one.attempt, one.is_speculative) for one in told] == [
        (0, 0, False), (0, 1, True), (0, 2, False), (1, 0, False),
    ]  # fmt: skip


def test_a_stage_attempt_without_tasks_hides_no_later_one(spark):
    spark.tasks[1, 2] = [Task(12, 0)]
    assert looked(spark, "job-a") == [(A, 0, 0, S.RUNNING)]


def test_the_last_look_comes_after_all_that_spark_was_told(spark):
    task = Task(7, 0)
    spark.tasks[1, 0] = [task]
    spark.when_empty = lambda: task.becomes("SUCCESS")
    told: list = []
    spark.attempts.look_at_last("job-a", told.append)
    assert [one.state for one in told] == [S.FINISHED]


def test_what_is_made_again_for_a_reader_is_the_makers_further_attempt(spark):
    spark.tasks[1, 0] = [Task(7, 0, "SUCCESS")]
    assert looked(spark, "job-a") == [(A, 0, 0, S.FINISHED)]
    del spark.tasks[1, 0]  # Spark forgets in time
    spark.jobs["job-b"] = [3, 4, 5]
    spark.rdds |= {3: [4, 5], 4: [8, 9], 5: [77]}
    spark.tasks |= {(3, 0): [Task(20, 0)], (4, 0): [Task(21, 0)], (5, 0): [Task(22, 0)]}
    assert looked(spark, "job-b") == [(A, 0, 1, S.RUNNING), (B, 0, 0, S.RUNNING)]


def test_a_stage_that_spark_does_not_know_yet_hides_no_other(spark):
    spark.jobs["job-a"] = [0, 1]
    spark.tasks[1, 0] = [Task(7, 0)]
    assert looked(spark, "job-a") == [(A, 0, 0, S.RUNNING)]
    spark._jsc = None  # stopped
    assert looked(spark, "job-a") == []
