"""What a job that shares workers may have: slots that are free, and those of workers that nobody uses. By docs/internals/workers.md."""

from types import SimpleNamespace

import pytest

from penstock.engine.hosting.spark import shared_provider
from penstock.engine.hosting.spark.shared_provider import SharingProvider
from penstock.engine.hosting.taskmanager_order import TaskSettings
from penstock.engine.model.messages.workers import WorkerKind
from penstock.engine.model.slot_size import UNSIZED, slot_size

OWN, OTHER = WorkerKind("own", 1), WorkerKind("other", 1)


class Cluster:
    """Spark with so many task slots, of which idle workers hold some; it answers at once."""

    def __init__(self, slots: int, *idle: WorkerKind) -> None:
        self.slots = slots
        self.idle = list(idle)

    def is_stopped(self):
        return False

    def free(self, _wanted):
        return self.slots - len(self.idle)

    def fits(self, kind, sizes):
        return min(self.idle.count(kind), len(sizes))

    def make_room(self, workers, kind=None):
        leaving = [one for one in self.idle if one != kind][:workers]
        for one in leaving:
            self.idle.remove(one)


@pytest.fixture
def free(monkeypatch):
    """How many TaskManagers a job that needs so many may start, and which idle workers are left."""

    def asked(cluster, needed):
        monkeypatch.setattr(shared_provider, "idle_workers", lambda context: list(cluster.idle))
        monkeypatch.setattr(
            shared_provider, "make_room", lambda context, *told: cluster.make_room(*told)
        )
        monkeypatch.setattr(SharingProvider, "_workers", cluster)
        monkeypatch.setattr(SharingProvider, "_settings", lambda *_: SimpleNamespace(kind=OWN))
        provider = SharingProvider.__new__(SharingProvider)
        provider.context, provider.spark_slots = None, cluster
        provider.needed, provider.slots_per_taskmanager = needed, 1
        provider.sharing = SimpleNamespace(takes_whole=False)
        return provider.free_slots(needed), cluster.idle

    return asked


def test_idle_workers_of_its_kind_serve_a_job_and_stay(free):
    assert free(Cluster(4, OWN, OWN), 4) == (4, [OWN, OWN])


def test_idle_workers_of_another_kind_make_room_if_their_slots_are_needed(free):
    assert free(Cluster(4, OTHER, OTHER, OWN), 4) == (4, [OWN])
    assert free(Cluster(4, OTHER), 3) == (4, [OTHER])


def test_no_more_is_promised_than_the_cluster_has(free):
    assert free(Cluster(3, OWN, OWN), 4) == (3, [OWN, OWN])
    assert free(Cluster(3, OTHER, OTHER), 4)[0] == 3


def test_a_job_that_grows_later_may_have_what_idle_workers_hold(free):
    """A reactive job needs one TaskManager to begin with, and takes all that there is."""
    assert free(Cluster(6, OTHER, OTHER, OWN, OWN), 1) == (6, [OTHER, OTHER, OWN, OWN])


@pytest.mark.parametrize(("slots", "share"), [(4, 256), (2, 128), (1, 64)])
def test_a_taskmanager_has_its_share_of_a_workers_network_memory(slots, share):
    worker = SimpleNamespace(slots_per_taskmanager=4)
    found = SharingProvider.task_settings_for(worker, TaskSettings(), slots, UNSIZED)
    assert found.network.memory_bytes == share << 20


def test_a_taskmanager_of_a_given_size_has_a_worker_of_its_own():
    worker, size = SimpleNamespace(slots_per_taskmanager=4), slot_size({"cpu": 2})
    found = SharingProvider.task_settings_for(worker, TaskSettings(), 1, size)
    assert found == TaskSettings()
