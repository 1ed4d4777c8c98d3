"""Laws of an exchange: batching, frames and turns change nothing that a consumer can tell."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.model.graph.chain import ChainedOperator
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.engine.model.ids import (
    AttemptId,
    DataSetId,
    ExecutionVertexId,
    PartitionId,
    ResultPartitionId,
    VertexId,
)
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import (
    ACTIVE,
    IDLE,
    EndOfData,
    EndOfPartition,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.network.partition.result_partition import (
    PartitionHooks,
    ResultPartition,
    pipelined_partition,
)
from penstock.engine.runtime.network.partitioner import make_partitioner
from penstock.engine.runtime.operators import MapOperator
from penstock.engine.runtime.task.input_processor import InputStatus, StreamOneInputProcessor
from penstock.engine.runtime.task.outputs import PartitionWriter
from penstock.engine.runtime.watermarks.valve import StatusWatermarkValve
from tests.tools.runtime.gates import (
    HERE,
    THERE,
    Host,
    ScriptedView,
    context_of,
    descriptor,
    gate_of,
    input_of,
    local_gate,
    result_id,
)
from tests.tools.runtime.remote_reading import Remote
from tests.tools.runtime.task_parts import Clock, ListInput, Logging, Remembering, task_of

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


LOCAL, REMOTE = HERE, THERE


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


NO_HOOKS = PartitionHooks()


def result_partition(producer, consumers, hooks=NO_HOOKS) -> ResultPartition:
    attempt = AttemptId(ExecutionVertexId(VertexId("p"), producer), 0)
    partition_id = ResultPartitionId(PartitionId(DataSetId("d"), producer), attempt)
    return pipelined_partition(partition_id, consumers, 512, hooks)


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


def consuming_task(index, partitions, where):
    host = Host()
    gate = gate_of(len(partitions), context_of(host))
    for place, part in enumerate(partitions):
        host.views[result_id(place)] = part
        gate.update_channel(place, descriptor(place, where), index)
    gate.request_partitions()
    if where is REMOTE:
        for place, part in enumerate(partitions):
            Remote(part, index, gate, place)
    out = Remembering()
    return out, task_of(
        [MapOperator(UserFunction(plus_one))],
        StreamOneInputProcessor(input_of(gate)),
        [out],
        Clock(),
    )


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
    ROWS, CUTS, st.integers(1, 4), STRATEGIES, st.sampled_from([LOCAL, REMOTE]),
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
    out, reader = consuming_task(0, [part], REMOTE)
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


@given(st.lists(EVENTS, min_size=1, max_size=4), st.data())
def test_a_task_sees_what_the_valve_says_for_any_interleaving(scripts, data):
    valve, expected = StatusWatermarkValve(len(scripts)), []
    out, log = Remembering(), []
    sources = [ScriptedView([*script, EndOfData(), EndOfPartition()]) for script in scripts]
    for source in sources:
        source.may_give = 0
    task = task_of(
        [Logging("op", log)],
        StreamOneInputProcessor(input_of(local_gate(*sources))),
        [out],
        Clock(),
    )
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
        sources[index].give()
        step = task.process_input()
    assert step is InputStatus.END_OF_INPUT
    assert [e for e in out.written if isinstance(e, (Watermark, WatermarkStatus))] == expected
    assert out.values == [*records, "op ended 0", "op finished"]
    marks = [e.timestamp_ms for e in out.written if isinstance(e, Watermark)]
    assert marks == sorted(set(marks))
