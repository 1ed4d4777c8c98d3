"""Laws of an exchange: batching, frames and turns change nothing that a consumer can tell."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.graph.chain import ChainedOperator
from penstock.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.model.ids import (
    AttemptId,
    DataSetId,
    ExecutionVertexId,
    PartitionId,
    ResultPartitionId,
    VertexId,
)
from penstock.runtime.codec import ChannelDecoder, ChannelEncoder
from penstock.runtime.context import UserFunction
from penstock.runtime.elements import (
    ACTIVE,
    IDLE,
    EndOfData,
    EndOfPartition,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from penstock.runtime.input_gate import InputGates
from penstock.runtime.input_status import InputStatus
from penstock.runtime.keys import KeySelection
from penstock.runtime.operators import MapOperator
from penstock.runtime.partitioner import make_partitioner
from penstock.runtime.result_partition import ResultPartition
from penstock.runtime.watermark_valve import StatusWatermarkValve
from penstock.runtime.writers import PartitionWriter
from tests.unit.runtime.tasks import Clock, ListInput, Logging, Remembering, task_of

ROWS = st.lists(st.integers(-50, 50), max_size=60)
CUTS = st.lists(st.integers(1, 7), max_size=30)
STRATEGIES = st.sampled_from([
    ShipStrategy.HASH,
    ShipStrategy.REBALANCE,
    ShipStrategy.SHUFFLE,
    ShipStrategy.RESCALE,
    ShipStrategy.GLOBAL,
    ShipStrategy.FORWARD,
])
PRODUCER = ChainedOperator(0, "Producer", "uid", object(), None, "here")


class Local:
    """A subpartition read in place."""

    def __init__(self, subpartition, notify) -> None:
        self.subpartition = subpartition
        subpartition.attach(notify)

    def poll(self):
        return self.subpartition.poll()

    def release(self) -> None:
        self.subpartition.release()


class Remote(Local):
    """The same through an encoder, bytes and a decoder."""

    def __init__(self, subpartition, notify) -> None:
        super().__init__(subpartition, notify)
        self.encoder, self.decoder = ChannelEncoder(), ChannelDecoder()
        self.frames: list = []

    def poll(self):
        if not self.frames and (element := self.subpartition.poll()) is not None:
            if isinstance(element, RowBatch):
                encoded = self.encoder.encode_to_size(element, 64)
                self.frames = [(kind, parts) for kind, parts, _ in encoded]
            else:
                self.frames = [self.encoder.encode(element)]
        if not self.frames:
            return None
        kind, parts = self.frames.pop(0)
        return self.decoder.decode(int(kind), b"".join(bytes(memoryview(p)) for p in parts))


def batches(values, cuts):
    """The values in batches of these lengths; the rest in one."""
    at = 0
    for cut in cuts:
        if at < len(values):
            yield RowBatch(values[at : at + cut])
            at += cut
    if at < len(values):
        yield RowBatch(values[at:])


def plus_one(value):
    return value + 1


def result_partition(producer, consumers) -> ResultPartition:
    attempt = AttemptId(ExecutionVertexId(VertexId("p"), producer), 0)
    partition_id = ResultPartitionId(PartitionId(DataSetId("d"), producer), attempt)
    return ResultPartition(partition_id, consumers, 512, lambda: None)


def producing_task(index, given_batches, consumers, strategy):
    part = result_partition(index, consumers)
    keys = KeySelection(lambda value: value)
    partitioner = make_partitioner(Partitioning(strategy, keys), consumers, index, 128, 1)
    given_input = ListInput(
        *((0, batch) for batch in given_batches), (0, EndOfData()), is_closed=True
    )
    operators = [MapOperator(UserFunction(plus_one))]
    writer = PartitionWriter(part, partitioner, None, PRODUCER)
    return part, task_of(operators, given_input, [writer], Clock())


def consuming_task(index, partitions, kind):
    gates = InputGates(lambda: None)
    channels = gates.add_gate(0, len(partitions))
    gates.start()
    for channel, part in zip(channels, partitions, strict=True):
        channel.connect(kind(part.subpartitions[index], channel.notify))
    out = Remembering()
    return out, task_of([MapOperator(UserFunction(plus_one))], gates, [out], Clock())


def run(tasks, turns) -> None:
    """Step tasks in the given order of turns, then round robin, until all are done."""
    done: set = set()
    for turn in turns:
        task = tasks[turn % len(tasks)]
        if task.process_input() is InputStatus.END_OF_INPUT:
            done.add(id(task))
    rounds = 0
    while len(done) < len(tasks):
        done |= {id(task) for task in tasks if task.process_input() is InputStatus.END_OF_INPUT}
        rounds += 1
        assert rounds < 10_000, "the exchange does not come to an end"


def exchanged(rows, cuts, consumers, strategy, kind, turns) -> list[list]:
    """What each consumer has after rows of two producers went to `consumers` of them."""
    half = len(rows) // 2
    producers = [
        producing_task(index, batches(part, cuts), consumers, strategy)
        for index, part in enumerate((rows[:half], rows[half:]))
    ]
    partitions = [part for part, _ in producers]
    readers = [consuming_task(index, partitions, kind) for index in range(consumers)]
    run([task for _, task in (*producers, *readers)], turns)
    for out, _ in readers:
        assert out.written[-1] == EndOfData()
        assert out.written.count(EndOfData()) == 1
        assert out.is_ended
    return [out.values for out, _ in readers]


@given(
    ROWS, CUTS, st.integers(1, 4), STRATEGIES, st.sampled_from([Local, Remote]),
    st.lists(st.integers(0, 5), max_size=40),
)  # fmt: skip
def test_any_batching_and_any_order_of_turns_gives_the_same_records(
    rows, cuts, consumers, strategy, kind, turns
):
    got = exchanged(rows, cuts, consumers, strategy, kind, turns)
    assert Counter(value for values in got for value in values) == Counter(v + 2 for v in rows)
    if strategy is ShipStrategy.HASH:
        places = [set(values) for values in got]
        assert sum(map(len, places)) == len(set(rows))  # each key in one subtask
        assert [
            set(values) for values in exchanged(rows, [], consumers, strategy, kind, [])
        ] == places


@given(ROWS, CUTS, st.lists(st.integers(0, 2), max_size=40))
def test_records_of_one_channel_keep_their_order(rows, cuts, turns):
    part, producer = producing_task(0, batches(rows, cuts), 1, ShipStrategy.FORWARD)
    out, reader = consuming_task(0, [part], Remote)
    run([producer, reader], turns)
    assert out.values == [value + 2 for value in rows]


# ---------------------------------------------------------------------- watermarks and idleness

EVENTS = st.lists(
    st.one_of(
        st.integers(0, 30).map(Watermark),
        st.sampled_from([IDLE, ACTIVE]),
        st.integers(0, 9).map(lambda value: RowBatch([value], np.array([value], np.int64))),
    ),
    max_size=8,
)


class Scripted:
    """A channel that gives its next element only when it is its turn."""

    def __init__(self, elements) -> None:
        self.elements = list(elements)
        self.may_give = 0

    def poll(self):
        if not self.may_give or not self.elements:
            return None
        self.may_give -= 1
        return self.elements.pop(0)

    def release(self) -> None:
        """Nothing to drop."""


@given(st.lists(EVENTS, min_size=1, max_size=4), st.data())
def test_a_task_sees_what_the_valve_says_for_any_interleaving(scripts, data):
    valve, expected = StatusWatermarkValve(len(scripts)), []
    gates, out, log = InputGates(lambda: None), Remembering(), []
    channels = gates.add_gate(0, len(scripts))
    gates.start()
    sources = [Scripted([*script, EndOfData(), EndOfPartition()]) for script in scripts]
    for channel, source in zip(channels, sources, strict=True):
        channel.connect(source)
    task = task_of([Logging("op", log)], gates, [out], Clock())
    step, records = InputStatus.NOTHING_AVAILABLE, []
    while remaining := [index for index, source in enumerate(sources) if source.elements]:
        index = data.draw(st.sampled_from(remaining))
        head = sources[index].elements[0]
        if isinstance(head, Watermark):
            expected += valve.input_watermark(head.timestamp_ms, index)
        elif isinstance(head, WatermarkStatus):
            expected += valve.input_status(head, index)
        elif isinstance(head, RowBatch):
            records += head.values
        sources[index].may_give = 1
        channels[index].notify()
        step = task.process_input()
    assert step is InputStatus.END_OF_INPUT
    assert [e for e in out.written if isinstance(e, (Watermark, WatermarkStatus))] == expected
    assert out.values == [*records, "op ended 0", "op finished"]
    marks = [e.timestamp_ms for e in out.written if isinstance(e, Watermark)]
    assert marks == sorted(set(marks))
