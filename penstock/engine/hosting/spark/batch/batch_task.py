"""One subtask of a BATCH job inside a Spark task: it reads records of the shuffle and yields
records for the shuffle.

The StreamTask is the one of streaming jobs; only its input and its outputs differ. Watermarks do
not leave a task: each input has a single watermark, the last one, at its end. Source: Flink's
StreamTask in BATCH execution.
"""

from __future__ import annotations

import logging
import pickle
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.engine.hosting.os.clock import wall_ms
from penstock.engine.hosting.shipping.pickling import (
    deserialize,
    deserialize_program,
    dumps_records,
)
from penstock.engine.hosting.spark.batch.key_spool import KeySpool
from penstock.engine.hosting.spark.batch.plan import Orders, Report, StageMetrics
from penstock.engine.hosting.spark.batch.shuffle_input import KeyedInput, ShuffleInput
from penstock.engine.hosting.spark.batch.shuffle_records import (
    DriverOutput,
    FrameOutput,
    Outbox,
    ShuffleOutput,
)
from penstock.engine.hosting.spark.dataframes.source import StageFrameSource
from penstock.engine.hosting.taskmanager.task.async_calls import AsyncCallThreads
from penstock.engine.hosting.taskmanager.task.source_input import SourceHost, SourceInput
from penstock.engine.model.graph.chain import ChainedOperator, ChainOutput, ChainSpec
from penstock.engine.model.ids import JobId
from penstock.engine.model.messages import TaskIo
from penstock.engine.model.program import FRAME_STREAM
from penstock.engine.runtime.interruption import UnwatchedCalls
from penstock.engine.runtime.network.partitioner import keys_of, make_partitioner
from penstock.engine.runtime.operator import BatchOrder, Operator, OperatorContext, OperatorServices
from penstock.engine.runtime.operators.keyed import KeyedOperator
from penstock.engine.runtime.sources.operator import SourceOperator, SourceSettings
from penstock.engine.runtime.task.chain import ChainMetrics, OperatorChain
from penstock.engine.runtime.task.chain_node import OperatorTimer
from penstock.engine.runtime.task.input_processor import InputStatus
from penstock.engine.runtime.task.operator_contexts import TaskPlace, operator_context
from penstock.engine.runtime.task.outputs import OutputWriter
from penstock.engine.runtime.task.slices import TaskTiming
from penstock.engine.runtime.task.stream_task import StreamTask

_LOGGER: Final = logging.getLogger(__name__)
_STEP_NS: Final = 5_000_000
_LONGEST_WAIT_S: Final = 0.5


@dataclass(slots=True)
class _Mails:
    """Actions that other threads hand to the task's own thread."""

    waiting: queue.SimpleQueue[Callable[[], None]] = field(default_factory=queue.SimpleQueue)
    is_there: threading.Event = field(default_factory=threading.Event)

    def put(self, action: Callable[[], None]) -> None:
        self.waiting.put(action)
        self.is_there.set()

    def run(self) -> None:
        self.is_there.clear()
        while not self.waiting.empty():
            self.waiting.get()()


class _Host:
    """`source_input.SourceHost` of a BATCH source, which has all of its splits from the start."""

    def __init__(
        self, operator_id: str, subtask: int, parallelism: int, wake: Callable[[], None]
    ) -> None:
        self.settings = SourceSettings(
            watermark_interval_ms=0, operator_id=operator_id, subtask=subtask
        )
        self.parallelism = parallelism
        self.wake = wake

    def backpressured_ms(self) -> int:
        return 0

    def request_split(self) -> None:
        """Does nothing: the reader hears that there are no more splits when it gets its splits."""

    def send_source_event(self, event: object) -> None:
        """Does nothing: the enumerator has assigned everything and is closed."""

    def report_watermark(self, watermark_ms: int) -> None:
        """Does nothing: sources of a BATCH job are not aligned with each other."""


class _WholeSource(SourceInput):
    """The input of a source that has all of its splits when it starts."""

    def __init__(
        self,
        operator: SourceOperator,
        spec: ChainedOperator,
        host: SourceHost,
        splits: Sequence[Any],
    ) -> None:
        super().__init__(operator, spec, host)
        self._splits = splits

    def start(self, chain: OperatorChain) -> None:
        super().start(chain)
        self.add_splits(self._splits)
        self.reader.notify_no_more_splits()


class _Calls(UnwatchedCalls):
    """`OperatorCalls`: nobody asks what a BATCH task does, but its complaints are logged."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id

    def complain(self, line: str) -> None:
        _LOGGER.warning("job=%s %s", self._job_id, line)


class BatchTask:
    """Runs to its end in `run`, on the thread that iterates over it."""

    def __init__(
        self, orders: Orders, subtask: int, attempt: int, records: Iterator[bytes]
    ) -> None:
        """`records`: from the shuffle; for a source, one record with its pickled splits."""
        self._orders = orders
        self._subtask = subtask
        self._attempt = attempt
        self._mails = _Mails()
        self._outbox = Outbox()
        self._committables: list[tuple[int, bytes]] = []
        spec: ChainSpec = deserialize_program(orders.chain)
        self._chain = OperatorChain(
            spec,
            wall_ms,
            _Calls(orders.job_id),
            metrics=ChainMetrics(is_for_functions=orders.settings.has_user_metrics),
            dumps=dumps_records,
            fresh_head=self._fresh_head,
        )
        self._input = self._input_of(spec, records)
        outputs = [self._output(spec, output) for output in spec.outputs]
        timing = TaskTiming(time.perf_counter_ns, wall_ms, _STEP_NS, 1 << 62)
        self._task = StreamTask(self._chain, self._input, outputs, timing)
        records_in, records_out = self._records_in, self._records_out
        place = subtask, attempt
        self._metrics = StageMetrics(self._chain, orders, place, records_in, records_out)

    def run(self) -> Iterator[tuple[int, bytes]]:
        """Yield (reduce partition, record) pairs; the last one is the report for the driver.

        Raises: UserCodeError; any error of Penstock itself.
        """
        try:
            self._chain.open(self._context_of)
            if isinstance(self._input, SourceInput):
                self._input.start(self._chain)
            self._metrics.opened(time.monotonic())
            while (status := self._task.process_input()) is not InputStatus.END_OF_INPUT:
                yield from self._outbox.take()
                if status is InputStatus.NOTHING_AVAILABLE:
                    self._wait()
                self._mails.run()
                self._metrics.tick(time.monotonic())
            for complaint in self._chain.user_metrics.update_gauges():
                _LOGGER.warning("%s", complaint)
        finally:
            self._chain.close()
            if not isinstance(self._input, SourceInput):
                self._input.close()
        yield from self._outbox.take()
        yield self._orders.driver_partition, pickle.dumps(self.report())

    def _wait(self) -> None:
        """Wait for a mail or for the next timer."""
        wait_s = _LONGEST_WAIT_S
        due_ms = self._task.next_timer_ms()
        if due_ms is not None:
            wait_s = min(wait_s, (due_ms - wall_ms()) / 1000)
        if isinstance(self._input, SourceInput) and self._input.wake_at_ms is not None:
            due_s = (self._input.wake_at_ms - self._input.monotonic_ms()) / 1000
            wait_s = min(wait_s, due_s)
        if wait_s > 0:
            self._mails.is_there.wait(wait_s)

    def report(self) -> Report:
        user_metrics, left_out = self._chain.user_metrics.numbers()
        io = TaskIo(
            records_in=self._records_in(),
            records_out=self._records_out(),
            late_records_dropped=self._chain.late_records_dropped,
            user_metrics=user_metrics,
            user_metrics_left_out=left_out,
        )
        metrics = self._metrics.payload() if self._orders.settings.reports_metrics else b""
        return Report(self._subtask, io, tuple(self._committables), metrics)

    def _records_in(self) -> int:
        return self._input.records_in

    def _records_out(self) -> int:
        return sum(output.records_out for output in self._task.outputs)

    # ------------------------------------------------------------------ building

    def _fresh_head(self) -> Operator:
        spec: ChainSpec = deserialize_program(self._orders.chain)
        head = spec.operators[0].operator
        assert isinstance(head, Operator)
        return head

    def _input_of(
        self, spec: ChainSpec, records: Iterator[bytes]
    ) -> SourceInput | ShuffleInput | KeyedInput:
        first = spec.operators[0]
        if not isinstance(first.operator, SourceOperator):
            return self._shuffled(spec, records)
        host = _Host(
            first.uid,
            self._subtask,
            self._orders.parallelism,
            lambda: self._mails.put(_nothing),
        )
        is_staged = isinstance(first.operator.source, StageFrameSource)
        splits = [records] if is_staged else deserialize(next(records))
        return _WholeSource(first.operator, first, host, splits)

    def _shuffled(self, spec: ChainSpec, records: Iterator[bytes]) -> ShuffleInput | KeyedInput:
        inputs = [one.input_index for one in spec.inputs]
        keys = [keys_of(one.partitioning) for one in spec.inputs]
        head = self._chain.head
        order = head.batch_order
        # Windows of a whole stream are keyed, but their input is not split by key.
        if not any(keys) and order is BatchOrder.BY_KEY and isinstance(head, KeyedOperator):
            keys = [head.selections[index] for index in inputs]
        if order is BatchOrder.AS_IT_COMES or not any(keys):
            return ShuffleInput(records, inputs, self._orders.wholes, self._orders.settings.memory)
        is_by_key = order is BatchOrder.BY_KEY
        spool = KeySpool(inputs, keys, self._orders.settings.memory, is_by_key=is_by_key)
        return KeyedInput(records, inputs, spool, is_by_key=is_by_key)

    def _output(self, spec: ChainSpec, output: ChainOutput) -> OutputWriter:
        producer = spec.operators[output.operator_index]
        if output.data_set_id is None:
            assert output.driver_stream is not None
            if output.driver_stream == FRAME_STREAM:
                return FrameOutput(producer, self._outbox)
            partition = self._orders.driver_partition
            return DriverOutput(
                output.driver_stream, output.element_type, producer, partition, self._outbox
            )
        exchange = self._orders.outputs[output.data_set_id]
        place = exchange.written_by(self._subtask, self._orders.parallelism)
        partitioner = make_partitioner(
            output.partitioning, place.count, self._subtask, exchange.max_parallelism, self._subtask
        )
        return ShuffleOutput(place, partitioner, output.element_type, producer, self._outbox)

    def _context_of(self, spec: ChainedOperator, timer: OperatorTimer) -> OperatorContext:
        orders = self._orders

        def report_committable(payload: object) -> None:
            self._committables.append((spec.node_id, dumps_records(payload)))

        place = TaskPlace(
            job_name=orders.job_name,
            job_id=JobId(orders.job_id),
            task_name=orders.vertex_name,
            subtask=self._subtask,
            parallelism=orders.parallelism,
            max_parallelism=orders.max_parallelism,
            attempt=self._attempt,
            job_parameters=dict(orders.job_parameters),
            watermark_interval_ms=0,
            restored_checkpoint_id=None,
            has_final_checkpoint=False,
            is_batch=True,
        )
        services = OperatorServices(
            async_calls=AsyncCallThreads(self._mails.put, f"penstock-async-{spec.name[:40]}"),
            report_committable=report_committable,
            active_ms=None,
            keyed_state=None,
        )
        return operator_context(place, spec, timer, services)


def _nothing() -> None:
    """A mail that only wakes the task."""
