"""Watches which TaskManagers are alive, and handles their loss. On the JobManager's loop only.

A TaskManager counts as alive while it or its supervisor is heard. The supervisor sends heartbeats
for a silent TaskManager, because a C call may hold the GIL. But a TaskManager without progress for
the frozen-timeout (or heartbeat.timeout, if that is longer) counts as frozen.

If both are silent, and the kernel of their machine still acknowledges what is sent to them, their
processes live and get no processor. They then have until the frozen-timeout. A pause of the driver
itself is nobody's silence.

Source: Flink's heartbeat listeners of JobMaster and ResourceManager. Differs: Flink has nobody who
vouches for a silent TaskManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from penstock.engine.hosting.jobmanager.machine_shell import (
    JobManagerSettings,
    MachineShell,
)
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.hosting.os.clock import monotonic_ms as now_ms
from penstock.engine.hosting.provider import HostChanges, HostLoss, TaskManagerProvider
from penstock.engine.machines.leases import Liveness
from penstock.engine.machines.taskmanager.task_lifecycle import fatal_at
from penstock.engine.model import messages
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.job_events import TaskManagerLost, TaskManagerStarved
from penstock.engine.model.options.cluster import HeartbeatOptions, TaskManagerOptions

# ---------------------------------------------------------------------- host watch
# Reports to the machines of a job what changes at its host: executors that leave, and executors
# that have come.
#
# On the JobManager's loop only. Source: Flink has no host that announces an end; there a
# TaskManager is lost, or not.


_SURELY_LATER: Final = 2


class HostWatch:
    """`most`: TaskManagers that the configuration allows; None: any number. `asking`: for lost ones, why their executor has ended."""

    def __init__(
        self,
        shell: MachineShell,
        provider: TaskManagerProvider,
        observer: JobObserver,
        most: int | None,
    ) -> None:
        self._shell = shell
        self.provider = provider
        self._observer = observer
        self._most = most
        self.staying: dict[ResourceId, str] = {}
        self.asking: set[ResourceId] = set()
        self._grown = 0
        self._full_since: int | None = None

    def registered(self, message: messages.RegisterTaskManager) -> None:
        executor = message.spark_task and message.spark_task.executor
        if executor and executor != "driver":  # Which is this process.
            self.staying[message.resource_id] = executor

    def tick(self) -> None:
        changes = self.provider.changes()
        if changes.leaving:
            self._look_for_leaving(changes.leaving)
        if changes.more_slots > self._grown:
            self._grow(changes.more_slots)
        self._look_for_room(changes)

    def _look_for_leaving(self, executors: frozenset[str]) -> None:
        """The ResourceManager knows first, so that it gives none of their slots away again."""
        left = {name: one for name, one in self.staying.items() if one in executors}
        there = tuple(name for name in left if name in self._shell.links)
        for name, executor in left.items():
            del self.staying[name]
            text = "job=%s taskmanager=%s LEAVING cause=executor %s is decommissioned"
            _LOG.warning(text, self._shell.job_id, name, executor)
        if there:
            going = ", ".join(sorted({left[name] for name in there}))
            cause = f"Spark decommissions executor {going}"
            event = messages.TaskManagersLeaving(there, cause, now_ms())
            self._shell.feed_resources(event)
            self._shell.feed_job(event)
            self.provider.leave(there)
            why = self._shell.master.why_it_stays
            if why is not None:
                event = replace(event, cause=f"{cause}; the job stays until it is gone: {why}")
                _LOG.warning("job=%s STAYS until they are gone cause=%s", self._shell.job_id, why)
            self._observer.observe(event)

    def _grow(self, more_slots: int) -> None:
        granted = self.provider.max_taskmanagers()
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
        self._shell.feed_resources(messages.TaskManagersAllowed(allowed, now_ms()))


# ---------------------------------------------------------------------- taskmanager watch


_LOG: Final = logging.getLogger(__name__)
_FROZEN_TIMEOUT: Final = TaskManagerOptions.FROZEN_TIMEOUT
_BEATS_PER_SILENCE: Final = 5
_BEATS_TO_ANSWER: Final = 3
_LAST_WORDS_S: Final = 0.3
_WHY_GONE_MS: Final = 5000
"""How long a cluster manager may take to say why it has ended an executor: YARN and Kubernetes know a second later."""
_ASK_AGAIN_S: Final = 0.1
_STACKS_S: Final = 2.0
_START_FAILURES_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class _Patience:
    """How long a starved TaskManager is waited for. `option`: the one that decides, with its value."""

    ms: int
    option: str


@dataclass(slots=True)
class _Signs:
    """What is known of one TaskManager. `progress`: as its supervisor reported it last.

    `silent_since_ms`: None while it is heard.
    """

    progress: int | None = None
    silent_since_ms: int | None = None
    is_stopped: bool = False


class TaskManagerWatch:
    """Gets signs of life and ends, and reports lost TaskManagers to the machines. `host`: looks at
    their executors.
    """

    def __init__(
        self,
        shell: MachineShell,
        provider: TaskManagerProvider,
        observer: JobObserver,
        settings: JobManagerSettings,
        is_over: Callable[[], bool],
    ) -> None:
        """`is_over`: whether the job has ended, so that losses no longer matter."""
        self._shell = shell
        self.provider = provider
        self._observer = observer
        self._cancellation_timeout_ms = int(settings.cancellation_timeout_s * 1000)
        self._is_over = is_over
        frozen_ms = int(settings.frozen_timeout_s * 1000)
        interval_ms = int(settings.heartbeat_interval_s * 1000)
        self._timeout_ms = timeout_ms = int(settings.heartbeat_timeout_s * 1000)
        patience_ms = max(frozen_ms, timeout_ms)
        decides = HeartbeatOptions.TIMEOUT if timeout_ms > frozen_ms else _FROZEN_TIMEOUT
        self._patience = _Patience(patience_ms, f"{decides.key} (now {patience_ms / 1000:g} s)")
        self._heard = Liveness[ResourceId](timeout_ms, interval_ms)
        self._moving = Liveness[ResourceId](patience_ms, interval_ms)
        self._signs: dict[ResourceId, _Signs] = {}
        self._ticked_ms: int | None = None
        silence_ms = int(settings.silence_timeout_s * 1000)
        self._beat_every_ms = min(interval_ms, silence_ms // _BEATS_PER_SILENCE)
        self._next_beat_ms = 0
        self._failed_starts = 0
        self.host = HostWatch(shell, provider, observer, settings.max_taskmanagers)

    # ------------------------------------------------------------------ signs of life

    def registered(self, resource_id: ResourceId) -> None:
        self._failed_starts = 0
        self._signs[resource_id] = _Signs()
        self._heard.watch(resource_id, now_ms())
        self._moving.watch(resource_id, now_ms())

    def heard(self, resource_id: ResourceId) -> None:
        self._alive(resource_id)
        self._moving.heard(resource_id, now_ms())

    def supervisor_heard(self, resource_id: ResourceId, progress: int) -> None:
        """A sign of life by the supervisor. `progress`: rises when one of its mailboxes turns."""
        signs = self._alive(resource_id)
        if signs is not None and progress != signs.progress:
            signs.progress = progress
            self._moving.heard(resource_id, now_ms())

    def stopped(self, resource_id: ResourceId) -> None:
        """Its supervisor says that the process is stopped, so it does not live."""
        signs = self._signs.get(resource_id)
        if signs is not None:
            signs.is_stopped = True

    def _alive(self, resource_id: ResourceId) -> _Signs | None:
        self._heard.heard(resource_id, now_ms())
        signs = self._signs.get(resource_id)
        if signs is not None:
            signs.silent_since_ms = None
            signs.is_stopped = False
        return signs

    def tick(self) -> None:
        """Send heartbeats while we lead the job. TaskManagers that are silent, frozen or do not end
        a cancelled task are lost.
        """
        now = now_ms()
        self._excuse_own_pause(now)
        if now >= self._next_beat_ms:
            self._next_beat_ms = now + self._beat_every_ms
            if self._shell.guard.may_vouch():
                self._shell.links.beat()
            self._ask_the_host()
        for silence in self._heard.tick(now):
            self._silent(silence.peer, now - silence.silent_ms, now)
        for silence in self._moving.tick(now):
            self._replace(
                silence.peer,
                f"no progress for {silence.silent_ms / 1000:.0f} s: frozen. If its calls take so "
                f"long, raise {self._patience.option}",
            )
        self._look_for_stuck_tasks(now)
        self.host.tick()

    def _excuse_own_pause(self, now: int) -> None:
        """A driver that was stopped or got no processor has not read what was sent to it."""
        if self._ticked_ms is not None:
            paused_ms = now - self._ticked_ms - self._heard.interval_ms
            if paused_ms > 0:
                _LOG.warning(
                    "job=%s driver=PAUSED for_ms=%d: it was stopped or got no processor",
                    self._shell.job_id,
                    paused_ms,
                )
                self._heard.excuse(paused_ms, now)
                self._moving.excuse(paused_ms, now)
                for attempt_id, since_ms in self._shell.cancelling.items():
                    self._shell.cancelling[attempt_id] = min(since_ms + paused_ms, now)
        self._ticked_ms = now

    def _ask_the_host(self) -> None:
        """A host that runs TaskManagers in this process sees whether they live."""
        for resource_id in list(self._signs):
            progress = self.provider.progress(resource_id)
            if progress is not None:
                self.supervisor_heard(resource_id, progress)

    def _silent(self, resource_id: ResourceId, since_ms: int, now: int) -> None:
        """Wait longer than `heartbeat.timeout` if the kernel shows that processes live."""
        signs = self._signs.setdefault(resource_id, _Signs())
        is_first = signs.silent_since_ms is None
        if signs.silent_since_ms is None:
            signs.silent_since_ms = since_ms
        silent_ms = now - signs.silent_since_ms
        lives = not signs.is_stopped and self._shell.links.answers(
            resource_id, _BEATS_TO_ANSWER * self._beat_every_ms
        )
        if lives and silent_ms < self._patience.ms:
            self._heard.watch(resource_id, now + self._heard.interval_ms - self._timeout_ms)
            if is_first:
                cause = (
                    f"no heartbeat for {silent_ms / 1000:.1f} s, but its machine answers: it gets "
                    f"no processor. It is lost after {self._patience.ms / 1000:g} s. If that "
                    "is too "
                    f"soon, raise {self._patience.option}"
                )
                self._log(resource_id, "STARVED", cause)
                self._observer.observe(TaskManagerStarved(resource_id, cause))
            return
        option = f"{HeartbeatOptions.TIMEOUT.key} (now {self._timeout_ms / 1000:g} s)"
        why = "nor of its supervisor"
        if signs.is_stopped:
            why = "its process is stopped"
        elif lives:
            why = "although its machine answers: it got no processor"
            option = self._patience.option
        self.lost(
            resource_id,
            f"no heartbeat for {silent_ms / 1000:.1f} s, {why}. If the machine is overloaded, "
            f"raise {option}",
        )

    def _look_for_stuck_tasks(self, now: int) -> None:
        """Replace TaskManagers with a cancelled task that does not end. This costs their other
        tasks, but a new one starts quickly.
        """
        timeout_ms = self._cancellation_timeout_ms
        for attempt_id, since_ms in list(self._shell.cancelling.items()):
            fatal_ms = fatal_at(since_ms, timeout_ms)
            if fatal_ms is None or now < fatal_ms:
                continue
            # An earlier loss in this loop may have removed it.
            self._shell.cancelling.pop(attempt_id, None)
            resource_id = self._shell.where.get(attempt_id)
            if resource_id is not None:
                cause = f"task {attempt_id} did not end within {timeout_ms / 1000:g} s of its cancel (task.cancellation.timeout)"  # fmt: skip
                self._replace(resource_id, cause)

    def _replace(self, resource_id: ResourceId, cause: str) -> None:
        """Have the supervisor kill an unusable TaskManager and report where its tasks were; then count it as lost."""
        if self._shell.links.kill(resource_id, cause):
            asyncio.get_running_loop().call_later(_STACKS_S, self.lost, resource_id, cause)
        else:
            self.lost(resource_id, cause)

    # ------------------------------------------------------------------ ends

    def disconnected(self, resource_id: ResourceId, cause: str) -> None:
        """A connection has ended. Wait for the supervisor, which reports why the process ended; or, if it has ended too,
        for what the host says of their executor.
        """
        if resource_id in self.host.asking:
            return
        self.host.asking.add(resource_id)
        wait_s = _LAST_WORDS_S if self._shell.links.is_supervised(resource_id) else 0.0
        until_ms = now_ms() + _WHY_GONE_MS
        loop = asyncio.get_running_loop()
        loop.call_later(wait_s, self._ask_why, resource_id, cause, until_ms)

    def _ask_why(self, resource_id: ResourceId, cause: str, until_ms: int) -> None:
        executor = self.host.staying.get(resource_id)
        if executor is None or resource_id not in self._shell.links or self._is_over():
            self._end_asking(resource_id, HostLoss(cause))
            return
        asked = asyncio.get_running_loop().run_in_executor(None, self.provider.why_gone, executor)
        asked.add_done_callback(
            lambda answer: self._on_answer(resource_id, cause, until_ms, answer.result())
        )

    def _on_answer(
        self, resource_id: ResourceId, cause: str, until_ms: int, loss: HostLoss | None
    ) -> None:
        if loss is None and now_ms() < until_ms:
            loop = asyncio.get_running_loop()
            loop.call_later(_ASK_AGAIN_S, self._ask_why, resource_id, cause, until_ms)
        else:
            self._end_asking(resource_id, loss or HostLoss(cause))

    def _end_asking(self, resource_id: ResourceId, loss: HostLoss) -> None:
        self.host.asking.discard(resource_id)
        self.lost(resource_id, loss.cause, for_memory=loss.for_memory)

    def host_ended(self, resource_id: ResourceId, cause: str) -> None:
        """The Spark task (or thread) of a TaskManager has ended."""
        if self._shell.links.is_fenced(resource_id) or resource_id in self.host.asking:
            return  # Its end is known already.
        if self._is_over():
            return
        if resource_id in self._shell.links:
            self.lost(resource_id, cause)
        else:
            self._on_start_failed(resource_id, cause)

    def lost(self, resource_id: ResourceId, cause: str, *, for_memory: bool = False) -> None:
        """Fence a TaskManager off and report its loss. Does nothing if it was fenced before."""
        self._heard.forget(resource_id)
        self._moving.forget(resource_id)
        self._signs.pop(resource_id, None)
        if resource_id not in self._shell.links or self._is_over():
            return
        self._log(resource_id, "LOST", cause)
        self._observer.observe(TaskManagerLost(resource_id, cause))
        self._shell.end_taskmanager(resource_id, f"fenced off: {cause}")
        self._shell.links.fence(resource_id)
        self._shell.feed_resources(messages.TaskManagerLostEvent(resource_id, cause, now_ms()))
        gone = messages.TaskManagerGone(resource_id, cause, now_ms(), for_memory)
        self._shell.feed_job(gone)

    def _log(self, resource_id: ResourceId, what: str, cause: str) -> None:
        job_id = self._shell.job_id
        _LOG.warning("job=%s taskmanager=%s %s cause=%s", job_id, resource_id, what, cause)

    def _on_start_failed(self, resource_id: ResourceId, cause: str) -> None:
        """Fail the job after several failed starts in a row, or without its host, because further ones will not help."""
        self._log(resource_id, "START_FAILED", cause)
        self._observer.observe(TaskManagerLost(resource_id, f"did not start: {cause}"))
        self._failed_starts += 1
        self._shell.feed_resources(messages.TaskManagerStartFailed(resource_id, cause, now_ms()))
        gone = self.provider.gone()
        if gone is None and self._failed_starts < _START_FAILURES_MAX:
            return
        text = (
            f"NoResourceAvailable: {self._failed_starts} TaskManagers in a row could not be "
            f"started. The last one: {cause}\n  on: {self.provider.describe()}"
        )
        if gone is not None:
            text = f"no TaskManager can be started any more: {gone}"
        failure = messages.FailureInfo("NoResourceAvailable", text, is_recoverable=False)
        self._shell.feed_job(messages.FailJob(failure, now_ms()))
