"""How TaskManagers are: late ones first, lost ones with their reason, figures as they were reported."""

import json
from dataclasses import replace

from penstock.engine.model.ids import ResourceId, taskmanager_name
from penstock.engine.model.job_events import TaskManagerLost
from penstock.engine.model.messages import Heartbeat, RegisterTaskManager
from penstock.ops.jobs.views.health import MOST_LOST, OF_A_PAGE, Chosen, figures_of, health
from tests.tools.observation.job_records import BEGAN, JOB, PLACE, ToldJob, facts

TM = taskmanager_name(JOB, PLACE.resource_id)


def told_of(snapshot, values=lambda name: {}, **chosen):
    told = health([snapshot], snapshot.now_ms, Chosen(**chosen), values)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    return told


def registers(told, name, slots=1):
    return told.tell(RegisterTaskManager(ResourceId(name), "host-a", 5001, slots, 77, 2, "3.11"))


def test_one_that_is_there_with_what_it_has_reported():
    job = registers(ToldJob().status("RUNNING"), PLACE.resource_id, slots=3).runs()
    reported = {
        "Status.JVM.CPU.Load": "0.25",
        "Status.JVM.Memory.Heap.Used": "1000",
        "Status.Arrow.Memory.Used": "10",
        "Status.JVM.GarbageCollector.All.TimeMsPerSecond": "50.0",
    }
    told = told_of(job.now_it_is(10), lambda name: reported if name == TM else {})
    (one,) = told["taskmanagers"]
    assert (one["id"], one["job-id"], one["job-name"], one["host"]) == (TM, JOB, "job", "host-a")
    assert (one["pid"], one["cores"], one["since"], one["late"]) == (77, 1, BEGAN, False)
    assert (one["slots-total"], one["slots-free"], one["tasks"]) == (3, 1, 4)
    assert (one["cpu"], one["resident"], one["arrow"], one["garbage"]) == (0.25, 1000, 10, 0.05)
    assert (one["buffers-free"], one["threads"]) == (None, None), "not reported"
    assert (told["total"], told["late"], told["pages"], told["lost"]) == (1, 0, 1, [])


def test_what_the_system_does_not_tell_is_not_known():
    found = figures_of({"Status.JVM.FileDescriptor.Open": "None", "Status.JVM.CPU.Load": "NaN"})
    assert set(found.values()) == {None}
    assert figures_of({"Status.JVM.Memory.Heap.Max": "-1"})["memory-max"] is None


def test_late_ones_come_first_and_others_by_name():
    known = replace(facts(), late_after_ms=1_000)
    job = ToldJob()
    job.record = type(job.record)(known)
    for name in ("tm-1", "tm-2", "tm-3"):
        registers(job, name)
    job.now += 1_000
    for name in ("tm-1", "tm-3"):
        job.tell(Heartbeat(ResourceId(name), 0))
    told = told_of(job.now_it_is())
    assert [one["late"] for one in told["taskmanagers"]] == [True, False, False]
    assert [one["id"] for one in told["taskmanagers"]][1:] == sorted(
        taskmanager_name(JOB, ResourceId(one)) for one in ("tm-1", "tm-3")
    )
    assert told["late"] == 1


def test_sorted_by_a_figure_the_unknown_ones_are_last_in_both_directions():
    job = ToldJob()
    loads = {"tm-1": "0.5", "tm-2": None, "tm-3": "0.75"}
    for name in loads:
        registers(job, name)
    by_name = {taskmanager_name(JOB, ResourceId(name)): load for name, load in loads.items()}

    def values(name):
        return {} if by_name[name] is None else {"Status.JVM.CPU.Load": by_name[name]}

    for is_descending, expected in ((False, [0.5, 0.75, None]), (True, [0.75, 0.5, None])):
        told = told_of(job.now_it_is(), values, sort="cpu", is_descending=is_descending)
        assert [one["cpu"] for one in told["taskmanagers"]] == expected


def test_pages_are_bounded_and_only_their_figures_are_asked_for():
    job = ToldJob()
    for number in range(OF_A_PAGE + 1):
        registers(job, f"tm-{number:04}")
    asked = []
    told = told_of(job.now_it_is(), lambda name: asked.append(name) or {}, page=9)
    assert (told["total"], told["page"], told["pages"], len(told["taskmanagers"])) == (
        OF_A_PAGE + 1, 1, 2, 1,
    )  # fmt: skip
    assert len(asked) == 1


def test_lost_ones_have_a_reason_and_the_newest_are_told():
    job = registers(ToldJob(), "kept")
    for number in range(MOST_LOST + 5):
        registers(job, f"tm-{number:04}")
        job.tell(TaskManagerLost(ResourceId(f"tm-{number:04}"), f"cause {number}"), 10)
    told = told_of(job.now_it_is())
    assert (told["total"], told["lost-total"], len(told["lost"])) == (1, MOST_LOST + 5, MOST_LOST)
    assert told["lost"][0]["reason"] == f"cause {MOST_LOST + 4}"


def test_of_a_job_that_has_ended_nothing_is_there_but_one_can_be_asked_for_by_name():
    job = registers(ToldJob(), PLACE.resource_id).status("CANCELED")
    told = told_of(job.now_it_is())
    assert (told["total"], told["lost-total"]) == (0, 0)
    (gone,) = told_of(job.now_it_is(), name=TM)["lost"]
    assert (gone["id"], gone["reason"]) == (TM, "its job has ended: CANCELED")
    assert told_of(job.now_it_is(), name="other")["lost"] == []
