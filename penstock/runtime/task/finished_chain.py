"""The chain of a task that begins as finished: a checkpoint found all subtasks of its vertex at the end of their data.

Its operators are neither opened nor fed; it passes the end on, and takes part in checkpoints without state. Source: Flink
FinishedOperatorChain, FinishedOnRestoreInput (docs/spec/checkpoints.md#finished-tasks).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from penstock.model.errors import EngineBug
from penstock.model.graph.chain import ChainSpec
from penstock.runtime.elements import (
    MAX_WATERMARK,
    ColumnBatch,
    Element,
    EndOfData,
    RowBatch,
    Watermark,
)
from penstock.runtime.task.chain import OperatorChain, Routed


class FinishedChain(OperatorChain):
    """Has no operators: what is said to all of them is said to nobody."""

    begins_finished = True
    takes_input = True
    is_drained = True

    def __init__(self, spec: ChainSpec, clock_ms: Callable[[], int]) -> None:
        super().__init__(ChainSpec((), spec.inputs, ()), clock_ms)
        self._outputs = len(spec.outputs)

    def feed(self, element: Element, input_index: int = 0) -> Iterator[Routed]:
        """Watermarks and the like of producers that had finished too. Raises: EngineBug: records, which nobody takes."""
        if isinstance(element, (RowBatch, ColumnBatch)):
            raise EngineBug(
                f"{len(element)} records came on input {input_index} of a task that had finished when the checkpoint was "
                "taken that it begins with"
            )
        return iter(())

    def emit_from_head(self, element: Element) -> Iterator[Routed]:
        return self.feed(element)

    def end_input(self, input_index: int) -> Iterator[Routed]:
        return iter(())

    def finish(self) -> Iterator[Routed]:
        """The last watermark: those downstream that had not finished see all of their inputs at the end."""
        for index in range(self._outputs):
            yield index, Watermark(MAX_WATERMARK)


class FinishedSource:
    """Input of a task whose source had finished: its end, at once. `runtime.task.stream_task.TaskInput`."""

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
