"""Aligned checkpoints through an exchange: what a consumer's snapshot holds is what came before the barriers, and
nothing else, whatever the order of turns.
"""

import pickle

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.model.checkpoints import RedistributionMode
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.engine.runtime.checkpoint.barrier_handler import Alignment, SingleBarrierHandler
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import CheckpointBarrier, EndOfData, RowBatch
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.network.gate.network_input import take_barriers
from penstock.engine.runtime.network.partitioner import make_partitioner
from penstock.engine.runtime.operator import Operator
from penstock.engine.runtime.operators import MapOperator
from penstock.engine.runtime.state.snapshot import ListPart, OperatorSnapshot
from penstock.engine.runtime.task.input_processor import StreamOneInputProcessor
from penstock.engine.runtime.task.outputs import PartitionWriter
from tests.property.exchange.test_exchange import (
    NO_HOOKS,
    PRODUCER,
    Remote,
    batches,
    plus_one,
    result_partition,
    run,
)
from tests.tools.runtime.gates import (
    HERE,
    THERE,
    Host,
    context_of,
    descriptor,
    gate_of,
    input_of,
    result_id,
)
from tests.tools.runtime.task_parts import Clock, ListInput, Remembering, task_of

ROWS = st.lists(st.integers(0, 99), max_size=40)
CUTS = st.lists(st.integers(1, 5), max_size=20)


class Collecting(Operator):
    """Keeps what it has seen; that is its state."""

    def __init__(self) -> None:
        self.seen: list = []

    def process(self, batch, input_index):
        self.seen += batch.values
        return (batch,)

    def snapshot(self):
        seen = ListPart(RedistributionMode.SPLIT, list(self.seen))
        return OperatorSnapshot(lists={"seen": seen})


def seen_in(snapshot):
    """Each element of a snapshot is a mark of one byte and a pickle."""
    return [pickle.loads(element[1:]) for element in snapshot.elements("seen")]


class AlignedRemote(Remote):
    """Goes on behind a barrier when its consumer says so."""

    def __init__(self, part, index, gate, place) -> None:
        super().__init__(part, index, gate, place)
        gate.context.host.clients[self.channel].on_resume = self.on_resume

    def on_resume(self) -> None:
        self.view.resume()
        self.notify_data()


class Producer:
    """A task without inputs that numbers its checkpoints; `positions`: rows out at each, by checkpoint."""

    def __init__(self, index, rows, cuts, consumers, hooks=NO_HOOKS) -> None:
        self.partition = result_partition(index, consumers, hooks)
        keys = KeySelection(lambda value: value)
        hashed = Partitioning(ShipStrategy.HASH, keys)
        writer = PartitionWriter(
            self.partition, make_partitioner(hashed, consumers, index, 128, 0), None, PRODUCER
        )
        source = ListInput(*((0, b) for b in batches(rows, cuts)), (0, EndOfData()), is_closed=True)
        self.emitted = Collecting()
        operators = [MapOperator(UserFunction(plus_one)), self.emitted]
        self.snapshots: dict = {}
        self.task = task_of(operators, source, [writer], Clock(), on_snapshot=self.on_snapshot)

    def on_snapshot(self, snapshot) -> None:
        in_hand = [v for _, e in snapshot.in_hand if isinstance(e, RowBatch) for v in e.values]
        before = seen_in(snapshot.operators["uid1"])
        self.snapshots[snapshot.barrier.checkpoint_id] = (before, in_hand)


def connected(index, producers, where, remote=AlignedRemote):
    """The input of one consumer; `remote`: what stands for the wire."""
    gate = gate_of(len(producers), context_of(Host()))
    for place, producer in enumerate(producers):
        gate.context.host.views[result_id(place)] = producer.partition
        gate.update_channel(place, descriptor(place, where), index)
    gate.request_partitions()
    if where is THERE:
        for place, producer in enumerate(producers):
            remote(producer.partition, index, gate, place)
    return input_of(gate)


class Consumer:
    def __init__(self, index, producers, where) -> None:
        network = connected(index, producers, where)
        take_barriers([network], handler, lambda: 0)
        self.snapshots: dict = {}
        self.task = task_of(
            [Collecting()],
            StreamOneInputProcessor(network),
            [Remembering()],
            Clock(),
            on_snapshot=self.on_snapshot,
        )

    def on_snapshot(self, snapshot) -> None:
        assert snapshot.in_hand == ()
        seen = seen_in(snapshot.operators["uid0"])
        self.snapshots[snapshot.barrier.checkpoint_id] = seen


def handler(channels):
    return SingleBarrierHandler(channels, Alignment.ALIGNED)


@given(
    st.lists(ROWS, min_size=1, max_size=3), CUTS, st.integers(1, 3), st.sampled_from([HERE, THERE]),
    st.data(),
)  # fmt: skip
def test_a_snapshot_holds_exactly_what_was_sent_before_the_barriers(
    rows, cuts, consumers, where, data
):
    producers = [Producer(i, part, cuts, consumers) for i, part in enumerate(rows)]
    readers = [Consumer(i, producers, where) for i in range(consumers)]
    tasks = [one.task for one in (*producers, *readers)]
    due = [(producer, number) for producer in producers for number in (1, 2)]
    last: dict = {}
    for turn in data.draw(st.lists(st.integers(0, len(tasks) + len(due)), max_size=40)):
        if turn < len(tasks):
            tasks[turn].process_input()
            continue
        waiting = [(p, n) for p, n in due if n == last.get(id(p), 0) + 1]
        if waiting:
            producer, number = waiting[turn % len(waiting)]
            last[id(producer)] = number
            due.remove((producer, number))
            producer.task.trigger_checkpoint(CheckpointBarrier(number, 0))
    for producer, number in due:
        producer.task.trigger_checkpoint(CheckpointBarrier(number, 0))
    run(tasks, [])
    for number in (1, 2):
        taken = [r.snapshots[number] for r in readers if number in r.snapshots]
        if len(taken) < consumers or not all(number in p.snapshots for p in producers):
            continue  # a producer had ended before its barrier: nothing was to be aligned
        sent = sorted(v for p in producers for v in p.snapshots[number][0])
        assert sorted(v for seen in taken for v in seen) == sent
        for producer, part in zip(producers, rows, strict=True):
            before, in_hand = producer.snapshots[number]
            done = [value + 1 for value in part]
            assert done[: len(before)] == before
            left = [value + 1 for value in in_hand]
            assert done[len(before) : len(before) + len(left)] == left
