"""The life of simulated tasks, and the results that they read from each other across TaskManagers.

Stands for `engine/hosting/taskmanager/task/thread.py` and the data plane. There are no rows, but tasks wait for each
other as in the real one. A task reads a pipelined result while it is made, a blocking one when it
is complete. A task is at its end when it has worked and all its pipelined producers are at theirs,
and tells its readers. With checkpoints it then waits for one that began after that. It finishes
after its pipelined producers, and after all readers of its own pipelined results have connected.
Knows no machine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from penstock.engine.model.ids import ResourceId, ResultPartitionId
from penstock.engine.model.messages import FailureInfo
from penstock.engine.model.states import ExecutionState
from simulation.barriers import Barriers
from simulation.clock import SimClock
from simulation.task import SimResult, SimTask

REQUEST_TIMEOUT_MS: Final = 10_000
_BROKEN: Final = "PartitionConnectionError"
_NOTICED_MS: Final = (0, 1, 20, 100)


class DataPlane:
    """All results of all TaskManagers, and who reads them. `work_ms`: how long a task without
    pipelined input works.

    `has_final_checkpoint`: whether tasks at their end wait for a checkpoint.
    """

    def __init__(
        self, clock: SimClock, work_ms: Callable[[SimTask], int], *, has_final_checkpoint: bool
    ) -> None:
        self._clock = clock
        self._work_ms = work_ms
        self._has_final_checkpoint = has_final_checkpoint
        self.results: dict[ResultPartitionId, SimResult] = {}
        self._waiting: dict[ResultPartitionId, list[SimTask]] = {}
        self.barriers = Barriers(clock, self.results)

    # ------------------------------------------------------------------ the life of a task

    def start(self, task: SimTask) -> None:
        """Publish the task's results; then request its inputs."""
        for result_id, result_type, subpartitions in task.outputs():
            self.results[result_id] = SimResult(
                result_id, result_type, subpartitions, task.host, task
            )
            for consumer in self._waiting.pop(result_id, ()):
                self._connect_later(consumer)
        task.missing = {
            channel.result_partition_id: None
            for channel, _ in task.inputs()
            if channel.result_partition_id is not None
        }
        task.host.after(REQUEST_TIMEOUT_MS, "RequestTimeout", lambda: self._give_up(task))
        self.connect(task)

    def connect(self, task: SimTask) -> None:
        """Connect to the results that exist; the task is RUNNING once none is missing."""
        if task.state is not ExecutionState.INITIALIZING or task.is_cancelled:
            return
        for result_id in list(task.missing):
            result = self.results.get(result_id)
            if result is None:
                self._wait(task, result_id)
                continue
            del task.missing[result_id]
            result.readers[task.attempt_id] = task
            if not result.result_type.is_blocking:
                task.unread[result_id] = None
                if not result.producer.is_at_end:
                    task.open[result_id] = None
                self._finish_soon(result.producer)
        if not task.missing:
            task.host.task_runs(task)
            restore = task.deployment.restore
            has_ended = bool(task.unread) or (restore is not None and restore.is_finished)
            delay_ms = 0 if has_ended else self._work_ms(task)
            task.host.after(delay_ms, "Work", lambda: self._end_data(task))

    def _end_data(self, task: SimTask) -> None:
        """If no more data comes, tell the readers, and wait for the final checkpoint."""
        if task.state is not ExecutionState.RUNNING or task.open or task.is_at_end:
            return
        if task.held_at is not None:
            task.has_put_off_end = True
            return
        task.is_at_end = True
        task.is_covered = not self._has_final_checkpoint
        for result_id, _, _ in task.outputs():
            result = self.results.get(result_id)
            if result is None or result.result_type.is_blocking:
                continue
            for reader in result.readers.values():
                told = partial(self._input_has_no_more, reader, result_id)
                reader.host.after(self._clock.random.choice(_NOTICED_MS), "EndOfData", told)
        if self._has_final_checkpoint:
            task.host.wait_for_final_checkpoint(task)
        self._finish_soon(task)

    def _input_has_no_more(self, task: SimTask, result_id: ResultPartitionId) -> None:
        task.open.pop(result_id, None)
        self._end_data(task)

    def checkpoint_completed(self, task: SimTask, checkpoint_id: int) -> None:
        """The task was told that a checkpoint is complete."""
        if task.held_at == checkpoint_id:
            noticed_ms = self._clock.random.choice(_NOTICED_MS)
            task.host.after(noticed_ms, "Leave", lambda: self._leave(task))
            return
        if task.final_checkpoint is not None and checkpoint_id >= task.final_checkpoint:
            task.is_covered = True
            self._finish_soon(task)

    def checkpoint_aborted(self, task: SimTask, checkpoint_id: int) -> None:
        """The task was told that a checkpoint is aborted. It goes on, if it waits behind it."""
        task.aborted = max(task.aborted, checkpoint_id)
        if task.held_at is not None and task.held_at <= checkpoint_id:
            task.held_at = None
            if task.has_put_off_end:
                task.has_put_off_end = False
                self._end_data(task)
            self._finish_soon(task)

    def _leave(self, task: SimTask) -> None:
        """Another generation goes on from the checkpoint: the task ends, and its readers see an orderly end."""
        if task.state is not ExecutionState.RUNNING or task.is_cancelled:
            return
        task.host.end_task(task, ExecutionState.FINISHED)
        for result_id, _, _ in task.outputs():
            result = self.results.pop(result_id, None)
            for reader in result.readers.values() if result is not None else ():
                reader.unread.pop(result_id, None)

    def _wait(self, task: SimTask, result_id: ResultPartitionId) -> None:
        where = next(
            (c.location for c, _ in task.inputs() if c.result_partition_id == result_id), None
        )
        waiting = self._waiting.setdefault(result_id, [])
        if task not in waiting:
            waiting.append(task)
        if where is None or not task.host.can_reach(where.resource_id):
            self._break(task, result_id, _BROKEN)

    def _give_up(self, task: SimTask) -> None:
        if task.missing and task.state is ExecutionState.INITIALIZING:
            self._break(task, next(iter(task.missing)), "PartitionNotFound")

    def _connect_later(self, task: SimTask) -> None:
        task.host.after(
            self._clock.random.choice(_NOTICED_MS), "Connect", lambda: self.connect(task)
        )

    def _finish_soon(self, task: SimTask) -> None:
        task.host.after(
            self._clock.random.choice(_NOTICED_MS), "Finish", lambda: self._finish(task)
        )

    def _finish(self, task: SimTask) -> None:
        """Finish the task if its inputs have ended, its results have reached their readers, and a
        checkpoint covers its end.
        """
        if task.state is not ExecutionState.RUNNING or not task.is_at_end or task.unread:
            return
        if not task.is_covered or task.held_at is not None:
            return
        made = [self.results[result_id] for result_id, _, _ in task.outputs()]
        pipelined = [result for result in made if not result.result_type.is_blocking]
        if any(len(result.readers) < result.subpartitions for result in pipelined):
            return
        for result in made:
            result.is_complete = True
        for channel, _ in task.inputs():
            read = channel.result_partition_id and self.results.get(channel.result_partition_id)
            if read:
                read.has_read.add(task.attempt_id.execution_vertex_id)
        task.host.end_task(task, ExecutionState.FINISHED)
        for result in pipelined:
            del self.results[result.result_id]
            for reader in result.readers.values():
                reader.unread.pop(result.result_id, None)
                self.barriers.input_ended(reader)
                self._finish_soon(reader)

    # ------------------------------------------------------------------ ends and broken connections

    def drop(self, task: SimTask, *, has_failed: bool) -> None:
        """The task did not finish: its results are gone, and its readers notice. If it has failed they are told so, perhaps
        before the JobManager hears of it.
        """
        for result_id, _, _ in task.outputs():
            self.release(result_id, "ProducerFailed" if has_failed else _BROKEN)

    def release(self, result_id: ResultPartitionId, kind: str = _BROKEN) -> None:
        result = self.results.pop(result_id, None)
        if result is None:
            return
        for reader in result.readers.values():
            if not result.is_complete:
                self._break_later(reader, result_id, kind=kind)

    def lose_host(self, resource_id: ResourceId, noticed_ms: int) -> None:
        """A host is gone with its results; readers elsewhere notice after a while."""
        lost = [r for r in self.results.values() if r.host.resource_id == resource_id]
        for result in lost:
            del self.results[result.result_id]
            for reader in result.readers.values():
                if reader.host.resource_id != resource_id and result.result_id in reader.unread:
                    self._break_later(reader, result.result_id, noticed_ms)

    def break_one(self) -> bool:
        """Break one connection between two tasks. False: there is none."""
        pairs = [
            (reader, result.result_id)
            for result in self.results.values()
            for reader in result.readers.values()
            if reader.state is ExecutionState.RUNNING and result.result_id in reader.unread
        ]
        if not pairs:
            return False
        reader, result_id = self._clock.random.choice(pairs)
        self._break_later(reader, result_id)
        return True

    def _break_later(
        self, task: SimTask, result_id: ResultPartitionId, delay_ms: int = 0, kind: str = _BROKEN
    ) -> None:
        delay_ms += self._clock.random.choice(_NOTICED_MS)
        call = partial(self._break, task, result_id, kind)
        task.host.after(delay_ms, "DataBroken", call)

    def _break(self, task: SimTask, result_id: ResultPartitionId, kind: str) -> None:
        if task.state.is_terminal or task.is_cancelled:
            return
        failure = FailureInfo(
            kind, f"cannot read {result_id}", lost_partition=result_id.partition_id
        )
        task.host.end_task(task, ExecutionState.FAILED, failure)
