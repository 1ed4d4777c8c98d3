"""However long a function takes for a record, a barrier waits behind few records: those that take the time in flight, not those that fit
into buffers. The time is that of a clock which only the function moves.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.runtime.checkpoint.barrier_handler import Alignment, SingleBarrierHandler
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import CheckpointBarrier, RowBatch
from penstock.engine.runtime.network.gate.debloater import FIRST_ROWS
from penstock.engine.runtime.network.gate.network_input import take_barriers
from penstock.engine.runtime.network.gate.single import SingleInputGate
from penstock.engine.runtime.network.partition.pipelined import MAX_ROWS_PER_FRAME
from penstock.engine.runtime.network.partitioner import RoundRobin
from penstock.engine.runtime.operators import FlatMapOperator, MapOperator
from penstock.engine.runtime.task.input_processor import InputStatus, StreamOneInputProcessor
from penstock.engine.runtime.task.outputs import PartitionWriter
from penstock.engine.runtime.task.slices import Pace, TaskTiming
from tests.tools.runtime.gates import (
    GateListener,
    Host,
    context_of,
    descriptor,
    input_of,
    result_id,
)
from tests.tools.runtime.partitions import pipelined
from tests.tools.runtime.task_parts import (
    MS,
    Clock,
    ListInput,
    Logging,
    Remembering,
    spec_of,
    task_of,
)

IN_FLIGHT_MS = 250
RECORDS = 30_000


class Pipeline:
    """Sources with all their records in one batch, a function that takes its time for each, chained operators between them."""

    def __init__(self, sources: int, ms: float, copies: int) -> None:
        self.clock = Clock()
        self.ms = ms
        self.processed: list[tuple[int, int]] = []
        self.snapshots: list[int] = []
        host = Host()
        self.producers = [self._producer(host, index, copies) for index in range(sources)]
        context = context_of(host)
        gate = SingleInputGate(0, sources, context, GateListener())
        gate.setup()
        context.in_flight.rows = FIRST_ROWS
        context.in_flight.add(gate)
        for index in range(sources):
            gate.update_channel(index, descriptor(index), 0)
        gate.request_partitions()
        own = input_of(gate)
        take_barriers(
            [own],
            lambda channels: SingleBarrierHandler(channels, Alignment.ALIGNED),
            self.clock.now_ms,
        )
        pace = Pace(IN_FLIGHT_MS * MS, sources, FIRST_ROWS, context.in_flight.announce)
        self.consumer = task_of(
            [MapOperator(UserFunction(self._process))],
            StreamOneInputProcessor(own),
            [Remembering()],
            self.clock,
            timing=TaskTiming(self.clock.now_ns, self.clock.now_ms, 5 * MS, 100 * MS, pace),
            on_snapshot=lambda snapshot: self.snapshots.append(self.clock.now_ms()),
        )

    def _producer(self, host, index, copies):
        partition = pipelined(index=index)
        partition.limit_rows(FIRST_ROWS)
        host.views[result_id(index)] = partition
        source = ListInput(
            (0, RowBatch([(index, number) for number in range(RECORDS)])), is_source=True
        )
        writer = PartitionWriter(
            partition, RoundRobin(1, 0), None, spec_of([Logging()]).operators[0]
        )
        return task_of(
            [Logging(), FlatMapOperator(UserFunction(lambda value: [value] * copies))],
            source,
            [writer],
            self.clock,
            on_snapshot=lambda _snapshot: None,
        )

    def _process(self, value):
        self.clock.spend_ms(self.ms)
        self.processed.append(value)
        return value

    def run(self, until) -> None:
        """As threads would: producers as far as they get, the consumer one step."""
        while not until():
            for producer in self.producers:
                for _ in range(50):
                    if producer.process_input() is InputStatus.NOTHING_AVAILABLE:
                        break
                    if not producer.is_output_available:
                        break
            self.consumer.process_input()


def triggered(pipeline) -> int:
    """Trigger a checkpoint and return how long its snapshot at the function takes, in ms."""
    for producer in pipeline.producers:
        producer.trigger_checkpoint(CheckpointBarrier(1, pipeline.clock.now_ms()))
    triggered_ms = pipeline.clock.now_ms()
    pipeline.run(lambda: pipeline.snapshots)
    return pipeline.snapshots[0] - triggered_ms


@settings(deadline=None, max_examples=40)
@given(
    sources=st.integers(1, 2),
    ms=st.sampled_from([0.05, 0.3, 2, 20, 100, 500, 600]),
    before=st.integers(1, 400),
)
def test_a_checkpoint_is_aligned_within_two_seconds(sources, ms, before):
    pipeline = Pipeline(sources, ms, copies=1)
    pipeline.run(lambda: len(pipeline.processed) >= before)
    assert triggered(pipeline) <= 2000


@settings(deadline=None, max_examples=20)
@given(sources=st.integers(1, 2), ms=st.sampled_from([0.05, 2, 10]), before=st.integers(1, 400))
def test_operators_that_give_many_records_for_one_send_few_ahead_too(sources, ms, before):
    pipeline = Pipeline(sources, ms, copies=50)
    pipeline.run(lambda: len(pipeline.processed) >= before)
    assert triggered(pipeline) <= 2000


@settings(deadline=None, max_examples=10)
@given(sources=st.integers(1, 3), ms=st.sampled_from([0.0005, 0.01, 2]))
def test_every_record_comes_in_its_order(sources, ms):
    pipeline = Pipeline(sources, ms, copies=1)
    pipeline.run(lambda: len(pipeline.processed) >= 3000)
    for source in range(sources):
        mine = [number for one, number in pipeline.processed if one == source]
        assert mine == list(range(len(mine)))


def test_a_fast_function_soon_gets_full_frames():
    pipeline = Pipeline(2, 0.001, copies=1)
    pipeline.run(lambda: len(pipeline.processed) >= RECORDS)
    frames = [len(batch) for batch in pipeline.consumer.outputs[0].written]
    assert max(frames) >= MAX_ROWS_PER_FRAME // 2
