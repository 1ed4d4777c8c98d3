from penstock.engine.model.job_events import TaskManagerLost
from penstock.ops.jobs.snapshots import DriverSnapshot
from penstock.ops.jobs.views import taskmanagers
from tests.tools.observation.job_records import BEGAN, PLACE, ToldJob


def driver(told):
    return DriverSnapshot((told.now_it_is(),), BEGAN)


def test_a_slot_is_free_when_no_task_that_runs_is_in_it():
    running = ToldJob().registers(slots=3).runs()
    (one,) = taskmanagers.all_of(driver(running))["taskmanagers"]
    assert (one["id"], one["slotsNumber"], one["freeSlots"]) == ("tm-1-aaaaaa", 3, 1)
    assert one["assignedTasks"] == 4
    assert taskmanagers.slots_of(running.now_it_is()) == (1, 3, 1)


def test_a_taskmanager_tells_of_its_slots():
    told = taskmanagers.details(driver(ToldJob().registers().runs()), "tm-1-aaaaaa", {})
    assert [slot["assignedTasks"] for slot in told["allocatedSlots"]] == [2, 2]
    assert taskmanagers.details(driver(ToldJob().registers()), "tm-2-aaaaaa", {}) is None


def test_a_lost_taskmanager_and_those_of_ended_jobs_are_not_there():
    lost = ToldJob().registers().tell(TaskManagerLost(PLACE.resource_id, "killed"))
    assert taskmanagers.all_of(driver(lost))["taskmanagers"] == []
    ended = ToldJob().registers().status("FINISHED")
    assert taskmanagers.all_of(driver(ended))["taskmanagers"] == []
