"""The chain of a task that begins as finished: in the restored checkpoint all subtasks of its vertex had reached the end of their data.

Its operators are neither opened nor given input. It passes the end on, and takes part in checkpoints without state. Source: Flink
FinishedOperatorChain, FinishedOnRestoreInput (docs/spec/checkpoints.md#finished-tasks).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from penstock.engine.model.errors import EngineBug
from penstock.engine.model.graph.chain import ChainSpec
from penstock.engine.runtime.elements import (
    MAX_WATERMARK,
    ColumnBatch,
    Element,
    EndOfData,
    RowBatch,
    Watermark,
)
from penstock.engine.runtime.task.chain import OperatorChain, Routed


class FinishedChain(OperatorChain):
    """A chain without operators: calls for all operators do nothing."""

    begins_finished = True
    takes_input = True
    is_drained = True

    def __init__(self, spec: ChainSpec, clock_ms: Callable[[], int]) -> None:
        super().__init__(ChainSpec((), spec.inputs, ()), clock_ms)
        self._outputs = len(spec.outputs)

    def feed(self, element: Element, input_index: int = 0) -> Iterator[Routed]:
        """Ignore watermarks and the like from producers that had finished too. Raises: EngineBug: records, which
        nobody would process.
        """
        if isinstance(element, (RowBatch, ColumnBatch)):
            raise EngineBug(
                f"{len(element)} records came on input {input_index}, but the task had finished in the "
                "checkpoint that it starts from"
            )
        return iter(())

    def emit_from_head(self, element: Element) -> Iterator[Routed]:
        return self.feed(element)

    def end_input(self, input_index: int) -> Iterator[Routed]:
        return iter(())

    def finish(self) -> Iterator[Routed]:
        """Emit the last watermark, so that tasks downstream that had not finished see the end of all their inputs."""
        for index in range(self._outputs):
            yield index, Watermark(MAX_WATERMARK)


class FinishedSource:
    """The input of a task whose source had finished: it ends at once. A `engine.runtime.task.stream_task.TaskInput`."""

    is_source = True
    has_read_all = True
    inputs = 1
    records_in = 0
    held: Sequence[tuple[int, Element]] = ()

    def __init__(self) -> None:
        self.is_finished = False

    def poll(self) -> tuple[int, Sequence[Element]] | None:
        if self.is_finished:
            return None
        self.is_finished = True
        return 0, (EndOfData(drain=True),)

    def poll_priority(self) -> tuple[int, Sequence[Element]] | None:
        return None
