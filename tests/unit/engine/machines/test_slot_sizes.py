"""Slots of a given size (fine-grained resources): from the groups to TaskManagers and back."""

import pytest

from penstock.engine.machines.job.job_master import JobMaster
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.machines.resources.resource_manager import ResourceManager
from penstock.engine.model.ids import AllocationId, JobId, ResourceId, TaskManagerLocation
from penstock.engine.model.messages import (
    AnswerOffers,
    DeclareRequirements,
    DeployTask,
    RequestSlot,
    ResourceTick,
    SlotFreed,
    SlotOffer,
    SlotsOffered,
    StartScheduling,
    StartTaskManager,
    TaskManagerLostEvent,
    TaskManagerRegistered,
)
from penstock.engine.model.slot_size import UNSIZED, slot_size
from simulation.bookkeeping import allocated_to, check_job, check_resources
from tests.tools.machines.job_graphs import job_graph

BIG = slot_size({"cpu": 2, "heap": 512})
JOB = JobId("job")


def two_groups():
    """A in the default group, B in one of large slots."""
    graph = job_graph({"A": 2, "B": 2}, [("A", "B")])
    for vertex in graph.vertices.values():
        vertex.slot_sharing_group = "default" if vertex.name == "A" else "big"
    graph.slot_sizes = {"big": BIG}
    return graph


@pytest.fixture
def job():
    return JobMaster(two_groups(), JobSettings(), 0)


def step(job, event):
    effects = job.step(event)
    check_job(job)
    return effects


def offered(name, size, count=1):
    location = TaskManagerLocation(ResourceId(name), "host", 1)
    offers = tuple(SlotOffer(AllocationId(f"{name}/{i}"), i, size) for i in range(count))
    return SlotsOffered(location, offers, 1)


def answers(effects):
    (answer,) = [e for e in effects if isinstance(e, AnswerOffers)]
    return len(answer.accepted), len(answer.rejected)


def test_the_job_declares_its_slots_by_size(job):
    (declared,) = [e for e in step(job, StartScheduling(0)) if isinstance(e, DeclareRequirements)]
    assert (declared.slots, declared.sized) == (2, ((BIG, 2),))


def test_usual_slots_do_not_serve_a_group_that_asks_for_more(job):
    step(job, StartScheduling(0))
    assert answers(step(job, offered("usual", UNSIZED, 4))) == (2, 2)
    effects = step(job, offered("big-1", BIG))
    assert answers(effects) == (1, 0)
    effects += step(job, offered("big-2", BIG))
    where = {
        f"{e.deployment.vertex_name}[{e.deployment.attempt_id.subtask}]": e.resource_id
        for e in effects
        if isinstance(e, DeployTask)
    }
    assert where == {"A[0]": "usual", "A[1]": "usual", "B[0]": "big-1", "B[1]": "big-2"}


def test_task_managers_are_asked_for_by_size():
    manager = ResourceManager(2)
    effects = manager.step(DeclareRequirements(JOB, 2, 0, ((BIG, 2),)))
    started = [(e.slots, e.size) for e in effects if isinstance(e, StartTaskManager)]
    assert started == [(1, BIG), (1, BIG), (2, UNSIZED)]  # the large are harder to place


def test_large_slots_that_come_first_are_not_taken_by_the_others(job):
    step(job, StartScheduling(0))
    assert answers(step(job, offered("big-1", BIG))) == (1, 0)
    assert answers(step(job, offered("big-2", BIG))) == (1, 0)
    assert answers(step(job, offered("big-3", BIG))) == (0, 1)
    effects = step(job, offered("usual", UNSIZED, 2))
    assert len([e for e in effects if isinstance(e, DeployTask)]) == 4


class Bench:
    def __init__(self, **settings):
        self.manager = ResourceManager(2, **settings)

    def step(self, event):
        effects = self.manager.step(event)
        check_resources(self.manager)
        return effects

    def register(self, name, slots, size):
        location = TaskManagerLocation(ResourceId(name), "host", 1)
        effects = self.step(TaskManagerRegistered(location, slots, 1, size))
        return [e for e in effects if isinstance(e, RequestSlot)]


def test_slots_are_requested_of_task_managers_of_their_size():
    bench = Bench()
    bench.step(DeclareRequirements(JOB, 1, 0, ((BIG, 1),)))
    assert len(bench.register("tm-1", 2, UNSIZED)) == 1
    (request,) = bench.register("tm-2", 1, BIG)
    assert request.resource_id == "tm-2"
    assert allocated_to(bench.manager, JOB) == 2


def test_a_lost_one_is_replaced_in_its_size():
    bench = Bench()
    bench.step(DeclareRequirements(JOB, 0, 0, ((BIG, 1),)))
    bench.register("tm-1", 1, BIG)
    effects = bench.step(TaskManagerLostEvent(ResourceId("tm-1"), "killed", 2))
    assert [e.size for e in effects if isinstance(e, StartTaskManager)] == [BIG]


def test_a_size_that_is_no_longer_declared_is_no_longer_served():
    bench = Bench()
    bench.step(DeclareRequirements(JOB, 0, 0, ((BIG, 1),)))
    (request,) = bench.register("tm-1", 1, BIG)
    assert bench.step(DeclareRequirements(JOB, 1, 2)) != []
    freed = bench.step(SlotFreed(ResourceId("tm-1"), 0, request.allocation_id))
    assert [e for e in freed if isinstance(e, RequestSlot)] == []
    assert allocated_to(bench.manager, JOB) == 0


def test_what_is_missing_is_said_with_its_size():
    bench = Bench(max_taskmanagers=1)
    effects = bench.step(DeclareRequirements(JOB, 0, 0, ((BIG, 2),)))
    assert [e.size for e in effects if isinstance(e, StartTaskManager)] == [BIG]
    said = [e for e in [*effects, *bench.step(ResourceTick(60_000))] if hasattr(e, "reason")]
    assert any("2 cores, 512 MiB of memory" in message.reason for message in said)
