"""Parts of a task for tests: a clock, an input that is a list, writers that remember, chains from operators."""

from collections import deque

from penstock.engine.model.graph.chain import (
    ChainedOperator,
    ChainInput,
    ChainOutput,
    ChainSpec,
    ChainTarget,
)
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.engine.runtime.elements import ColumnBatch, RowBatch
from penstock.engine.runtime.operator import Operator, OperatorContext
from penstock.engine.runtime.task.chain import OperatorChain
from penstock.engine.runtime.task.slices import TaskTiming
from penstock.engine.runtime.task.stream_task import StreamTask

MS = 1_000_000


class Clock:
    """Nanoseconds that only tests and fake user functions spend."""

    def __init__(self) -> None:
        self.ns = 0

    def now_ns(self) -> int:
        return self.ns

    def now_ms(self) -> int:
        return self.ns // MS

    def spend_ms(self, ms: float) -> None:
        self.ns += int(ms * MS)


class ListInput:
    """(input index, element) pairs; ends when `is_closed` and empty."""

    is_source = False
    held = ()

    def __init__(self, *elements, is_closed=False, is_source=False) -> None:
        self.elements = deque(elements)
        self.is_closed = is_closed
        self.is_source = is_source
        self.inputs = 1
        self.records_in = 0

    def poll(self):
        if not self.elements:
            return None
        input_index, element = self.elements.popleft()
        return input_index, [element]

    def poll_priority(self):
        return None

    @property
    def has_read_all(self) -> bool:
        return self.is_source or self.is_finished

    @property
    def is_finished(self) -> bool:
        return self.is_closed and not self.elements


class Remembering:
    """An output: what was written, when it was flushed. `room`: batches until it is full."""

    def __init__(self, room=None) -> None:
        self.written: list = []
        self.flushes: list[int] = []
        self.room = room
        self.is_ended = False

    def write(self, element) -> None:
        self.written.append(element)

    def flush(self) -> None:
        self.flushes.append(len(self.written))

    def finish(self) -> None:
        self.is_ended = True

    @property
    def is_available(self) -> bool:
        return self.room is None or len(self.written) < self.room

    row_limit = None

    @property
    def records_out(self) -> int:
        return len(self.values)

    @property
    def values(self) -> list:
        return values_of(self.written)


def values_of(elements) -> list:
    found: list = []
    for element in elements:
        if isinstance(element, RowBatch):
            found += element.values
        elif isinstance(element, ColumnBatch):
            found += element.data.to_pylist()
    return found


def output(operator_index=0, tag=None) -> ChainOutput:
    forward = Partitioning(ShipStrategy.FORWARD)
    return ChainOutput(operator_index, tag, None, "stream", forward, None, 100)


def spec_of(operators, targets=None, outputs=None, types=()) -> ChainSpec:
    """Operators one behind the other unless `targets` ((tag, index) by operator) says otherwise."""
    last = len(operators) - 1
    if targets is None:
        targets = [[(None, index + 1)] if index < last else [] for index in range(last + 1)]
    chained = tuple(
        ChainedOperator(
            index, f"Op{index}", f"uid{index}", operator, None, f"program.py:{index}",
            tuple(ChainTarget(tag, to) for tag, to in targets[index]),
        )
        for index, operator in enumerate(operators)
    )  # fmt: skip
    inputs = tuple(ChainInput(index, kind) for index, kind in enumerate(types or [None]))
    return ChainSpec(chained, inputs, tuple(outputs or [output(last)]))


def context_for(spec, timer) -> OperatorContext:
    return OperatorContext(
        job_name="job", task_name="Task", operator_name=spec.name, operator_id=spec.uid, subtask=0,
        parallelism=1, max_parallelism=128, attempt=0, timers=timer,
    )  # fmt: skip


def opened(operators, clock=None, **spec) -> OperatorChain:
    chain = OperatorChain(spec_of(operators, **spec), (clock or Clock()).now_ms)
    chain.open(context_for)
    return chain


def timing_of(clock, max_step_ms=5, buffer_timeout_ms=100) -> TaskTiming:
    return TaskTiming(clock.now_ns, clock.now_ms, max_step_ms * MS, buffer_timeout_ms * MS)


def task_of(
    operators, task_input, outputs, clock, *,
    timing=None, checkpoints=None, on_snapshot=None, **spec,
) -> StreamTask:  # fmt: skip
    chain = opened(operators, clock, **spec)
    made = timing or timing_of(clock)
    return StreamTask(chain, task_input, outputs, made, checkpoints, on_snapshot)


class Logging(Operator):
    """Passes everything on and writes down every call."""

    def __init__(self, name="op", log=None) -> None:
        self.name = name
        self.log = [] if log is None else log

    def open(self, context) -> None:
        self.context = context
        self.log.append((self.name, "open"))

    def process(self, batch, input_index):
        self.log.append((self.name, "process", input_index, values_of([batch])))
        return (batch,)

    def process_watermark(self, watermark, input_index):
        self.log.append((self.name, "watermark", input_index, watermark.timestamp_ms))
        return (watermark,)

    def on_processing_time(self, now_ms):
        self.log.append((self.name, "timer", now_ms))
        return ()

    def end_input(self, input_index):
        self.log.append((self.name, "end_input", input_index))
        return (RowBatch([f"{self.name} ended {input_index}"]),)

    def finish(self):
        self.log.append((self.name, "finish"))
        return (RowBatch([f"{self.name} finished"]),)

    def close(self) -> None:
        self.log.append((self.name, "close"))
