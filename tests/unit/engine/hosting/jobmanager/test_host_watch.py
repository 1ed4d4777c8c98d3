"""What the machines of a job are told of their host's executors, each thing once."""

from types import SimpleNamespace

import pytest

from penstock.engine.hosting.jobmanager.taskmanager_watch import HostWatch
from penstock.engine.hosting.provider import HostChanges
from penstock.engine.model.deployment import SparkTask
from penstock.engine.model.ids import JobId, ResourceId
from penstock.engine.model.messages import (
    RegisterTaskManager,
    TaskManagersAllowed,
    TaskManagersLeaving,
)


class Shell:
    """Takes what is fed, in order. `links`: the TaskManagers that are there."""

    job_id = JobId("job")

    def __init__(self, *links):
        self.links = set(links)
        self.fed = []
        self.why_it_stays = None
        self.seen = []
        self.resource_manager = SimpleNamespace(
            is_full=False, taskmanagers=SimpleNamespace(staying=3)
        )

    @property
    def master(self):
        return self

    def feed_resources(self, event):
        self.fed.append(("resources", event))

    def feed_job(self, event):
        self.fed.append(("job", event))

    def observe(self, event):
        self.seen.append(event.cause)

    def take(self):
        fed, self.fed = self.fed, []
        return [(who, type(event), getattr(event, "resource_ids", None)) for who, event in fed]


class Provider:
    def __init__(self, granted=2):
        self.now = HostChanges()
        self.granted = granted
        self.left = []

    def changes(self):
        return self.now

    def max_taskmanagers(self):
        return self.granted

    def leave(self, resource_ids):
        self.left += resource_ids


def registration(name, executor):
    task = SparkTask(1, 0, 7, executor)
    return RegisterTaskManager(ResourceId(name), "host", 1, 1, 2, 3, "3.11", spark_task=task)


def test_taskmanagers_on_a_leaving_executor_are_told_once_to_the_resource_manager_first():
    shell, provider = Shell("tm-1", "tm-2"), Provider()
    watch = HostWatch(shell, provider, shell, None)
    watch.registered(registration("tm-1", "0"))
    watch.registered(registration("tm-2", "1"))
    watch.tick()
    assert shell.take() == []
    provider.now = HostChanges(frozenset("1"))
    watch.tick()
    assert shell.take() == [
        ("resources", TaskManagersLeaving, ("tm-2",)),
        ("job", TaskManagersLeaving, ("tm-2",)),
    ]
    assert provider.left == ["tm-2"]
    assert shell.seen == ["Spark decommissions executor 1"]
    watch.tick()
    assert shell.take() == []


def test_a_taskmanager_that_registers_on_a_leaving_executor_is_told_too():
    shell, provider = Shell("tm-1"), Provider()
    watch = HostWatch(shell, provider, shell, None)
    provider.now = HostChanges(frozenset("1"))
    watch.tick()
    watch.registered(registration("tm-1", "1"))
    watch.tick()
    assert shell.take()[0] == ("resources", TaskManagersLeaving, ("tm-1",))


def test_one_that_is_gone_already_and_one_of_an_unknown_executor_are_not_told():
    shell, provider = Shell("tm-2"), Provider()
    watch = HostWatch(shell, provider, shell, None)
    watch.registered(registration("tm-1", "1"))
    watch.registered(registration("tm-2", None))
    provider.now = HostChanges(frozenset("1"))
    watch.tick()
    assert shell.take() == []


def test_slots_that_have_come_raise_the_number_of_taskmanagers_up_to_what_is_configured():
    shell, provider = Shell(), Provider(granted=2)
    watch = HostWatch(shell, provider, shell, 4)
    for more, allowed in ((1, [3]), (1, []), (5, [4])):
        provider.now = HostChanges(frozenset(), more)
        watch.tick()
        assert [event.most for _, event in shell.fed] == allowed
        assert all(isinstance(event, TaskManagersAllowed) for _, event in shell.fed)
        shell.fed.clear()


def looks(shell, watch, provider, *looks):
    """How many TaskManagers are allowed after each look: (number, free slots)."""
    for number, free in looks:
        provider.now = HostChanges(frozenset(), 0, free, number)
        watch.tick()
    return [event.most for _, event in shell.fed]


def test_a_job_that_wants_more_takes_slots_that_others_have_given_back():
    """Only of a look that began after its own TaskManagers had theirs."""
    shell, provider = Shell(), Provider(granted=3)
    watch = HostWatch(shell, provider, shell, None)
    shell.resource_manager.is_full = True
    assert looks(shell, watch, provider, (7, 5), (7, 5), (8, 5)) == []
    assert looks(shell, watch, provider, (9, 2)) == [5]
    assert looks(shell, watch, provider, (10, 2), (11, 2)) == [5]


def test_a_job_that_has_all_it_wants_or_waits_for_taskmanagers_takes_no_more():
    shell, provider = Shell(), Provider(granted=3)
    watch = HostWatch(shell, provider, shell, None)
    assert looks(shell, watch, provider, (1, 5), (2, 5), (3, 5), (4, 5)) == []
    shell.resource_manager.is_full = True
    assert looks(shell, watch, provider, (5, 5), (6, 5)) == []
    shell.resource_manager.is_full = False
    watch.tick()
    shell.resource_manager.is_full = True
    assert looks(shell, watch, provider, (7, 5), (8, 5)) == []


@pytest.mark.parametrize(("free", "most"), [(0, None), (None, None), (2, 3)])
def test_without_free_slots_or_beyond_the_configuration_nothing_is_allowed(free, most):
    shell, provider = Shell(), Provider(granted=3)
    watch = HostWatch(shell, provider, shell, most)
    shell.resource_manager.is_full = True
    assert looks(shell, watch, provider, (1, free), (2, free), (3, free), (4, free)) == []


def test_a_host_without_a_limit_needs_no_such_event():
    shell, provider = Shell(), Provider(granted=None)
    provider.now = HostChanges(frozenset(), 3)
    HostWatch(shell, provider, shell, None).tick()
    assert shell.fed == []


def test_the_log_says_why_a_job_stays_until_its_taskmanagers_are_gone(caplog):
    shell, provider = Shell("tm-1"), Provider()
    shell.why_it_stays = "the job takes no checkpoints"
    watch = HostWatch(shell, provider, shell, None)
    watch.registered(registration("tm-1", "0"))
    provider.now = HostChanges(frozenset("0"))
    with caplog.at_level("WARNING"):
        watch.tick()
    assert "job=job STAYS until they are gone cause=the job takes no checkpoints" in caplog.text
    (said,) = shell.seen
    assert said.endswith("the job stays until it is gone: the job takes no checkpoints")
