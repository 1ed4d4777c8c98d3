"""Tells the machines of a job what changes at its host: executors that leave, and executors that have come.

On the JobManager's loop only. Source: Flink has no host that announces an end; there a TaskManager is lost, or not.
"""

from __future__ import annotations

import logging
from typing import Final

from penstock.hosting.jobmanager.machine_shell import MachineShell, now_ms
from penstock.hosting.provider import HostChanges, TaskManagerProvider
from penstock.model.ids import ResourceId
from penstock.model.messages import (
    RegisterTaskManager,
    TaskManagersAllowed,
    TaskManagersLeaving,
)

_LOG: Final = logging.getLogger(__name__)
_SURELY_LATER: Final = 2


class HostWatch:
    """`most`: TaskManagers that the configuration allows; None: any number."""

    def __init__(
        self, shell: MachineShell, provider: TaskManagerProvider, most: int | None
    ) -> None:
        self._shell = shell
        self._provider = provider
        self._most = most
        self._staying: dict[ResourceId, str] = {}
        self._grown = 0
        self._full_since: int | None = None

    def registered(self, message: RegisterTaskManager) -> None:
        task = message.spark_task
        if task is not None and task.executor is not None:
            self._staying[message.resource_id] = task.executor

    def tick(self) -> None:
        changes = self._provider.changes()
        if changes.leaving:
            self._look_for_leaving(changes.leaving)
        if changes.more_slots > self._grown:
            self._grow(changes.more_slots)
        self._look_for_room(changes)

    def _look_for_leaving(self, executors: frozenset[str]) -> None:
        """The ResourceManager knows first, so that it gives none of their slots away again."""
        left = {name: one for name, one in self._staying.items() if one in executors}
        there = tuple(name for name in left if name in self._shell.links)
        for name, executor in left.items():
            del self._staying[name]
            text = "job=%s taskmanager=%s LEAVING cause=executor %s is decommissioned"
            _LOG.warning(text, self._shell.job_id, name, executor)
        if there:
            event = TaskManagersLeaving(there, "its executor is decommissioned", now_ms())
            self._shell.feed_resources(event)
            self._shell.feed_job(event)
            self._provider.leave(there)
            why = self._shell.master.why_it_stays
            if why is not None:
                _LOG.warning("job=%s STAYS until they are gone cause=%s", self._shell.job_id, why)

    def _grow(self, more_slots: int) -> None:
        granted = self._provider.max_taskmanagers()
        self._grown = more_slots
        if granted is not None:
            self._allow(granted + more_slots)

    def _look_for_room(self, changes: HostChanges) -> None:
        """Take slots that others have given back since the job began, if it wants more than it has.

        A look may have begun before the last TaskManager had its slot, and the next one may end at once. The third is surely later.
        """
        manager = self._shell.resource_manager
        if not manager.is_full:
            self._full_since = None
        elif self._full_since is None:
            self._full_since = changes.look
        elif changes.free_slots and changes.look >= self._full_since + _SURELY_LATER:
            self._full_since = None
            there = manager.taskmanagers.staying
            if self._most is None or there < self._most:
                self._allow(there + changes.free_slots)

    def _allow(self, most: int) -> None:
        allowed = most if self._most is None else min(most, self._most)
        self._shell.feed_resources(TaskManagersAllowed(allowed, now_ms()))
