"""BATCH jobs whose vertices get their parallelism from the data, and who reads what of an exchange.

Expectations: docs/spec/scheduling.md#parallelism-by-bytes,
docs/spec/exchange.md#choosing-a-channel.
"""

from collections import Counter

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.datastream import BroadcastProcessFunction, KeyedProcessFunction, MapFunction
from penstock.datastream.connectors import NumberSequenceSource
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.engine.hosting.spark.batch.shuffle_input import ShuffleInput
from penstock.engine.hosting.spark.batch.shuffle_records import RecordBuilder
from penstock.engine.model.errors import BrokenInvariant
from penstock.engine.model.states import ExecutionState
from penstock.engine.runtime.elements import RowBatch
from tests.tools.hosting.running_job import control_of
from tests.tools.programs.environments import batch_environment

PREFIX = "execution.batch.adaptive.auto-parallelism"
LONG_TEXT = "x" * 1000


def sized_environment(**settings):
    given = {f"{PREFIX}.{name.replace('_', '-')}": value for name, value in settings.items()}
    return batch_environment(settings=given)


def run(stream):
    """Rows, and the parallelism of each vertex by the name of its first operator."""
    collected = stream.execute_and_collect()
    client = collected.get_job_client()
    with collected as found:
        rows = list(found)
    graph = control_of(client).master.graph
    assert {vertex.state for vertex in graph.vertices} == {ExecutionState.FINISHED}
    return rows, {one.name.split(" -> ")[0]: len(one.vertices) for one in graph.job_vertices}


class Where(KeyedProcessFunction):
    """(key, subtask, subtasks, records of the key), the last only with the key's last record."""

    def open(self, runtime_context):
        self.place = (
            runtime_context.get_index_of_this_subtask(),
            runtime_context.get_number_of_parallel_subtasks(),
            runtime_context.get_max_number_of_parallel_subtasks(),
        )
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        yield (ctx.get_current_key(), *self.place, self.seen.value())


def test_each_started_volume_gets_a_subtask_and_each_key_one_of_them():
    env = sized_environment(avg_data_volume_per_task="20 kb", default_source_parallelism="3")
    numbers = env.from_source(
        NumberSequenceSource(0, 99), WatermarkStrategy.no_watermarks(), "numbers"
    )
    texts = numbers.map(lambda value: (value % 10, f"{value:04}" * 250))
    rows, subtasks = run(texts.key_by(lambda pair: pair[0]).process(Where()))
    assert subtasks["Source: numbers"] == 3
    assert subtasks["KEYED PROCESS"] == 5  # 100 kB and what frames add to it, 20 KiB for each
    assert {most for _, _, _, most, _ in rows} == {128}
    assert {count for _, _, count, _, _ in rows} == {5}
    assert Counter(key for key, *_ in rows) == dict.fromkeys(range(10), 10)
    assert len({(key, subtask) for key, subtask, *_ in rows}) == 10
    assert {key: seen for key, *_, seen in rows} == dict.fromkeys(range(10), 10)


def test_little_data_has_one_subtask_and_a_program_that_says_how_many_has_so_many():
    env = sized_environment()
    values = env.from_collection(range(9), Types.LONG()).rebalance().map(lambda v: v, Types.LONG())
    fixed = values.rebalance().filter(lambda v: True).set_parallelism(3)
    rows, subtasks = run(fixed)
    assert sorted(rows) == list(range(9))
    assert (subtasks["Map"], subtasks["Filter"]) == (1, 3)


def test_the_vertexs_own_most_counts_and_the_least_of_all():
    env = sized_environment(min_parallelism="2", avg_data_volume_per_task="100 b")
    values = env.from_collection([LONG_TEXT] * 9, Types.STRING()).rebalance()
    mapped = values.map(lambda v: v, Types.STRING()).set_max_parallelism(4)
    filtered = mapped.rebalance().filter(lambda text: False)
    _, subtasks = run(filtered.rebalance().flat_map(lambda text: [text]))
    assert subtasks["Map"] == 4
    assert 90 <= subtasks["Filter"] <= 128  # 9 kB and what frames add to it, 100 bytes for each
    assert subtasks["FlatMap"] == 2  # nothing to read


class Subtask(MapFunction):
    def open(self, runtime_context):
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value):
        return (*value, self.subtask)


@pytest.mark.parametrize("is_open", [True, False])
def test_forward_keeps_the_subtask_where_nothing_is_chained(is_open):
    env = sized_environment(min_parallelism="4")
    env.disable_operator_chaining()
    spread = env.from_collection([(n,) for n in range(20)]).rebalance().map(Subtask())
    spread = spread if is_open else spread.set_parallelism(4)
    rows, subtasks = run(spread.forward().map(Subtask()).name("second"))
    assert subtasks["second"] == 4
    assert {first for _, first, _ in rows} == {0, 1, 2, 3}
    assert all(first == second for _, first, second in rows)


def test_rescale_keeps_to_the_readers_of_the_producer():
    env = sized_environment().set_parallelism(4)
    spread = env.from_collection([(n,) for n in range(40)]).rebalance().map(Subtask())
    rows, _ = run(spread.set_parallelism(2).rescale().map(Subtask()))
    assert {(first, second) for _, first, second in rows} == {(0, 0), (0, 1), (1, 2), (1, 3)}


class Rules(BroadcastProcessFunction):
    """What of the broadcast side each record has found."""

    RULES = MapStateDescriptor("rules", Types.LONG(), Types.LONG())

    def process_element(self, value, ctx):
        yield value, sum(1 for _ in ctx.get_broadcast_state(self.RULES).items())

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(self.RULES).put(value, value)


@pytest.mark.parametrize("is_open", [True, False])
def test_a_broadcast_is_read_whole_before_the_rest_though_one_producer_made_both(is_open):
    env = sized_environment(min_parallelism="2")
    env = env if is_open else env.set_parallelism(2)
    numbers = env.from_source(
        NumberSequenceSource(0, 29), WatermarkStrategy.no_watermarks(), "numbers"
    )
    both = numbers.rebalance().connect(numbers.broadcast(Rules.RULES))
    rows, subtasks = run(both.process(Rules()))
    assert sorted(rows) == [(value, 30) for value in range(30)]
    assert subtasks["Co-Process-Broadcast"] == 2


def records_of(gate, values, *, is_broadcast=False):
    builder = RecordBuilder(gate, 1, 1)
    found = [builder.add(RowBatch([value])) for value in values]
    return [*found, *([builder.finish(is_last=True)] if is_broadcast else [])]


def values_of(source):
    found = []
    while (polled := source.poll()) is not None:
        found += [v for one in polled[1] if isinstance(one, RowBatch) for v in one.values]
    return found


@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_whatever_order_records_come_in_the_broadcast_ones_are_first(memory):
    one, other = (records_of(1, values, is_broadcast=True) for values in ([1, 2], [3]))
    rest = records_of(0, [10, 11, 12, 13])
    mixed = [rest[0], one[0], rest[1], *other, rest[2], *one[1:], rest[3]]
    source = ShuffleInput(iter(mixed), [0, 1], {1: 2}, memory)
    assert values_of(source) == [1, 3, 2, 10, 11, 12, 13]
    assert source.records_in == 7
    source.close()


def test_a_broadcast_without_an_end_is_a_bug():
    source = ShuffleInput(iter(records_of(1, [1])), [0, 1], {1: 1}, 100)
    with pytest.raises(BrokenInvariant, match="1 producers of a broadcast"):
        values_of(source)
