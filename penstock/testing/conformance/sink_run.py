"""One deployment of a sink, driven by hand: the operator that runs it in a job, one per subtask.

Knows nothing of what is expected. Source: Flink SinkTestSuiteBase, SinkWriterOperator, CommitterOperator.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.connectors.api.base import Committer, RowBatch, Sink
from penstock.engine.hosting.shipping.pickling import deserialize, serialize
from penstock.engine.model.checkpoints import RedistributionMode
from penstock.engine.runtime.operator import NO_SERVICES, Emitted, OperatorContext
from penstock.engine.runtime.operators.sinks import (
    COMMITTABLES,
    WRITER_STATE,
    GatheringSink,
    SinkOperator,
    WriterOperator,
)
from penstock.engine.runtime.state.snapshot import ListPart, OperatorSnapshot

_SINK: Final = "sink"
_COMMITTER: Final = "sink-global-committer"
PUT_OFF_TRIES: Final = 100
PUT_OFF_S: Final = 2.0
_LISTS: Final = (COMMITTABLES, WRITER_STATE)


@dataclass(frozen=True, slots=True)
class KeptSink:
    """A checkpoint: the pickled elements of each list, of all subtasks."""

    checkpoint_id: int
    lists: dict[str, tuple[bytes, ...]]


class SinkRun:
    """One attempt of all subtasks of one job."""

    def __init__(
        self,
        sink: Sink,
        parallelism: int,
        job: str,
        attempt: int = 0,
        kept: KeptSink | None = None,
        *,
        input_type: Any = None,
        takes_checkpoints: bool = True,
    ) -> None:
        """`kept`: the checkpoint to begin with; its elements are spread over the subtasks, as in a rescale."""
        self.sink: Sink = deserialize(serialize(sink))
        self.reported: list[object] = []
        self._job = job
        self._operators: list[SinkOperator] = []
        self._committer: SinkOperator | None = None
        self._parallelism = parallelism
        self._attempt = attempt
        self._kept = kept
        self._takes_checkpoints = takes_checkpoints
        is_global = self.sink.has_global_committer
        try:
            if is_global:
                self._committer = SinkOperator(GatheringSink(self.sink))
                self._open(self._committer, _COMMITTER, 0, 1, (COMMITTABLES,))
            for subtask in range(parallelism):
                operator = WriterOperator(self.sink) if is_global else SinkOperator(self.sink)
                self._operators.append(operator)
                lists = (WRITER_STATE,) if is_global else _LISTS
                self._open(operator, _SINK, subtask, parallelism, lists, input_type)
        except BaseException:
            self.close()
            raise

    def _open(
        self,
        operator: SinkOperator,
        uid: str,
        subtask: int,
        parallelism: int,
        lists: Sequence[str],
        input_type: Any = None,
    ) -> None:
        kept = self._kept
        if kept is not None:
            found = {
                name: ListPart(
                    RedistributionMode.SPLIT,
                    [deserialize(one) for one in elements[subtask::parallelism]],
                )
                for name, elements in kept.lists.items()
                if name in lists
            }
            operator.restore(OperatorSnapshot(lists=found))
        operator.open(
            OperatorContext(
                job_name="conformance",
                task_name="sink",
                operator_name="sink",
                operator_id=uid,
                subtask=subtask,
                parallelism=parallelism,
                max_parallelism=128,
                attempt=self._attempt,
                timers=_Timers(),
                input_types=(input_type,),
                job_id=self._job,
                services=replace(NO_SERVICES, report_committable=self.reported.append),
                restored_checkpoint_id=None if kept is None else kept.checkpoint_id,
                has_final_checkpoint=self._takes_checkpoints,
            )
        )

    def write(self, subtask: int, records: Sequence[Any]) -> None:
        self._operators[subtask].process(RowBatch(list(records)), 0)

    def prepare(self, subtask: int, checkpoint_id: int) -> dict[str, tuple[bytes, ...]]:
        """Before the barrier; returns the subtask's part of the checkpoint. The last one's has that of the global committer."""
        operator = self._operators[subtask]
        self._hand_over(operator.prepare_snapshot_pre_barrier(checkpoint_id))
        part = _part_of(operator)
        if self._committer is not None and self._is_last(subtask):
            self._hand_over(self._committer.prepare_snapshot_pre_barrier(checkpoint_id))
            part |= _part_of(self._committer)
        return part

    def notify(self, subtask: int, checkpoint_id: int) -> None:
        """The checkpoint is complete: the subtask commits, and tries again what it has put off."""
        operator = self._operators[subtask]
        if self._committer is not None and self._is_last(subtask):
            operator = self._committer
        operator.notify_checkpoint_complete(checkpoint_id)
        patience = _Patience()
        while operator.has_put_off:
            patience.check()
            operator.on_processing_time(0)

    def finish(self, subtask: int) -> None:
        self._hand_over(self._operators[subtask].finish())
        if self._committer is not None and self._is_last(subtask):
            self._committer.finish()

    def close(self) -> None:
        operators, self._operators = self._operators, []
        for operator in operators:
            operator.close()
        committer, self._committer = self._committer, None
        if committer is not None:
            committer.close()

    def _hand_over(self, emitted: Emitted) -> None:
        """What writers emit goes to the global committer, pickled as by an exchange."""
        for batch in emitted:
            assert self._committer is not None, "only writers before a global committer emit"
            assert isinstance(batch, RowBatch), "writers emit what they have prepared"
            self._committer.process(deserialize(serialize(batch)), 0)

    def _is_last(self, subtask: int) -> bool:
        return subtask == self._parallelism - 1


def _part_of(operator: SinkOperator) -> dict[str, tuple[bytes, ...]]:
    lists = operator.snapshot().lists
    return {name: tuple(map(serialize, lists[name].elements)) for name in _LISTS if name in lists}


def kept_sink(checkpoint_id: int, parts: Sequence[dict[str, tuple[bytes, ...]]]) -> KeptSink:
    """The checkpoint of these subtasks."""
    names = {name for part in parts for name in part}
    return KeptSink(
        checkpoint_id,
        {
            name: tuple(one for part in parts for one in part.get(name, ()))
            for name in sorted(names)
        },
    )


def committables_of(kept: KeptSink) -> list[object]:
    return [deserialize(one)[1] for one in kept.lists.get(COMMITTABLES, ())]


def committer_of(sink: Sink) -> Committer | None:
    """The driver's committer."""
    committer = sink.create_committer()
    if committer is not None:
        committer.operator_id = _COMMITTER if sink.has_global_committer else _SINK
    return committer


def commit(committer: Committer, committables: Sequence[object]) -> None:
    """As the driver and the tasks do it: what is put off is tried again."""
    left: Sequence[object] | None = list(committables)
    patience = _Patience()
    while left:
        patience.check()
        left = committer.commit(deserialize(serialize(list(left))))


class _Patience:
    """Bounds how often a committer may put off what it has to commit: nothing is away here."""

    def __init__(self) -> None:
        self._tries = 0
        self._deadline_s = time.monotonic() + PUT_OFF_S

    def check(self) -> None:
        """Raises: TimeoutError."""
        self._tries += 1
        if self._tries > PUT_OFF_TRIES and time.monotonic() > self._deadline_s:
            raise TimeoutError(
                f"the committer still puts committables off after {self._tries - 1} tries. "
                "Commit them, or raise an error when they can not be committed"
            )


class _Timers:
    """`ProcessingTimers` that never fire by themselves."""

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def schedule(self, at_ms: int) -> None:
        """Who drives the run looks at what is put off."""

    def cancel(self) -> None:
        """There is none."""
