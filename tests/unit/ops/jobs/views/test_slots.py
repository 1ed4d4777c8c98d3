"""Who is where: TaskManagers, slots, and the subtasks that share them."""

import json
from dataclasses import replace

from penstock.engine.model.deployment import SparkTask
from penstock.engine.model.ids import (
    AllocationId,
    JobId,
    ResourceId,
    TaskManagerLocation,
    taskmanager_name,
)
from penstock.engine.model.job_events import SlotsMissing, TaskDeployed, TaskManagerLost
from penstock.engine.model.messages import Heartbeat, RegisterTaskManager
from penstock.ops.jobs.record import JobRecord
from penstock.ops.jobs.views.rows import answer_of
from penstock.ops.jobs.views.slots import MOST_SLOTS, MOST_SUBTASKS, slot_map
from tests.tools.observation.job_records import (
    BEGAN,
    JOB,
    PLACE,
    SINK,
    SOURCE,
    ToldJob,
    attempt,
    facts,
)

TM = taskmanager_name(JOB, PLACE.resource_id)


def told_of(*jobs, spark_ui=None):
    told = answer_of(slot_map(jobs, max(one.now_ms for one in jobs), spark_ui))
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    return told


def registers(told, name, slots, **more):
    return told.tell(
        RegisterTaskManager(ResourceId(name), "host-a", 5001, slots, 1, 2, "3", **more)
    )


def test_subtasks_that_share_a_slot():
    told = registers(ToldJob().status("RUNNING"), "tm-1", 3).runs()
    told.has(attempt(SINK, 1), busy_ms_per_s=123.4567)
    answer = told_of(told.now_it_is(10))
    (box,) = answer.pop("taskmanagers")
    assert answer == {
        "now": BEGAN + 10,
        "folded": False,
        "total": 3,
        "shown": 3,
        "free": 1,
        "missing": 0,
        "wanted": [],
        "late": [],
        "spark-ui": None,
        "hosts": [],
    }
    _, second = box.pop("slots")
    assert box == {
        "id": TM,
        "job-id": JOB,
        "host": "host-a",
        "data-port": 5001,
        "pid": 1,
        "since": BEGAN,
        "heard": BEGAN,
        "late": False,
        "spark": None,
        "slots-total": 3,
        "slots-free": 1,
    }
    assert (second["id"], second["slot-sharing-group"]) == ("slot-1", "default")
    assert (second["total"], second["shown"]) == (2, 2)
    busiest, silent = second["subtasks"]
    assert busiest == {
        "vertex-id": SINK,
        "vertex-name": "Reduce -> Sink: <out>",
        "subtask": 1,
        "attempt": 0,
        "state": "RUNNING",
        "busy": 0.123,
    }
    assert (silent["vertex-id"], silent["busy"]) == (SOURCE, None)


def test_the_task_of_spark_and_its_pages():
    task = SparkTask(7, 0, 12, "3")
    job = registers(ToldJob(), "tm-1", 1, spark_task=task).now_it_is()
    (box,) = told_of(job, spark_ui="http://host:4040")["taskmanagers"]
    assert box["spark"] == {
        "executor": "3",
        "stage": 7,
        "partition": 0,
        "task-attempt": 12,
        "executor-page": "http://host:4040/executors/threadDump/?executorId=3",
        "stage-page": "http://host:4040/stages/stage/?id=7&attempt=0",
    }
    (box,) = told_of(job)["taskmanagers"]
    assert (box["spark"]["executor"], box["spark"]["executor-page"]) == ("3", None)
    other = registers(ToldJob(), "tm-1", 1, spark_task=replace(task, executor=None)).now_it_is()
    (box,) = told_of(other, spark_ui="http://host:4040")["taskmanagers"]
    assert box["spark"]["executor-page"] == "http://host:4040/executors/"


def test_who_is_silent_for_long_is_late():
    told = registers(registers(ToldJob(late_after_ms=100), "tm-1", 1), "tm-2", 1)
    told.tell(Heartbeat(ResourceId("tm-2"), 0), 60)
    assert told_of(told.now_it_is(39))["late"] == []
    answer = told_of(told.now_it_is(1))
    assert answer["late"] == [TM]
    assert [one["late"] for one in answer["taskmanagers"]] == [True, False]


def test_slots_that_are_missing_until_nobody_waits_for_one():
    told = registers(ToldJob(), "tm-1", 1).moves(attempt(), "SCHEDULED")
    told.tell(SlotsMissing(3, 1, "ask http://me:word@host for more"))
    answer = told_of(told.now_it_is())
    assert answer["missing"] == 2
    assert answer["wanted"] == [
        {"job-id": JOB, "subtasks": 1, "missing": 2, "reason": "ask http://******@host for more"}
    ]
    told.moves(attempt(), "DEPLOYING")
    assert told_of(told.now_it_is())["missing"] == 0


def test_taskmanagers_that_are_gone_are_not_told():
    told = registers(registers(ToldJob(), "tm-1", 1), "tm-2", 1)
    told.tell(TaskManagerLost(ResourceId("tm-1"), "lost"))
    assert [one["id"][:4] for one in told_of(told.now_it_is())["taskmanagers"]] == ["tm-2"]
    assert told_of(told.status("FINISHED").now_it_is())["total"] == 0


def test_jobs_have_taskmanagers_of_their_own():
    first, second = registers(ToldJob(), "tm-1", 1), ToldJob()
    second.record = JobRecord(replace(facts(), job_id=JobId("b" * 32)))
    registers(second, "tm-1", 2)
    answer = told_of(first.now_it_is(), second.now_it_is())
    assert [(one["job-id"][0], one["slots-free"]) for one in answer["taskmanagers"]] == [
        ("a", 1),
        ("b", 2),
    ]
    assert answer["total"] == answer["free"] == 3


def large(slots, of_each):
    """One subtask in each slot of many TaskManagers."""
    told = ToldJob(parallelism=slots)
    for subtask in range(slots):
        name = f"tm-{subtask // of_each}"
        if subtask % of_each == 0:
            registers(told, name, of_each)
        one = attempt(SOURCE, subtask)
        place = TaskManagerLocation(ResourceId(name), "host-a", 5001)
        told.moves(one, "RUNNING").tell(TaskDeployed(one, place, AllocationId(f"slot-{subtask}")))
        told.has(one, busy_ms_per_s=float(subtask % 1_000))
    return told.now_it_is()


def test_with_too_many_slots_hosts_are_told():
    answer = told_of(large(MOST_SLOTS + 10, 10))
    assert (answer["folded"], answer["taskmanagers"], answer["shown"]) == (True, [], 0)
    assert (answer["total"], answer["free"]) == (MOST_SLOTS + 10, 0)
    assert answer["hosts"] == [
        {
            "host": "host-a",
            "taskmanagers": 201,
            "slots-total": 2_010,
            "slots-free": 0,
            "subtasks": 2_010,
            "busy": {"median": 0.497, "max": 0.999},
        }
    ]


def test_of_a_slot_with_many_subtasks_the_busiest_are_told():
    parallelism = MOST_SUBTASKS + 5
    told = registers(ToldJob(parallelism=parallelism), "tm-1", 1)
    for subtask in range(parallelism):
        one = attempt(SOURCE, subtask)
        told.moves(one, "RUNNING").deployed(one, "slot")
        told.has(one, busy_ms_per_s=subtask / 10)
    (box,) = told_of(told.now_it_is())["taskmanagers"]
    (slot,) = box["slots"]
    assert (slot["total"], slot["shown"]) == (parallelism, MOST_SUBTASKS)
    assert slot["subtasks"][0]["subtask"] == parallelism - 1
    assert len(slot["subtasks"]) == MOST_SUBTASKS
