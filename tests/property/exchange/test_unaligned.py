"""Unaligned checkpoints through an exchange: what consumers have seen, hold in hand, and what is in flight is what was sent
before the barriers, record for record, whatever the order of turns and whoever stands still.
"""

import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.model.checkpoints import CheckpointOptions
from penstock.engine.runtime.checkpoint.barrier_handler import Alignment, SingleBarrierHandler
from penstock.engine.runtime.checkpoint.input_checkpoints import InputHooks, replayed
from penstock.engine.runtime.elements import CheckpointBarrier
from penstock.engine.runtime.network.gate.network_input import take_barriers
from penstock.engine.runtime.network.partition.result_partition import PartitionHooks
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.task.input_processor import StreamOneInputProcessor
from tests.property.exchange.test_alignment import (
    CUTS,
    AlignedRemote,
    Collecting,
    Producer,
    connected,
    seen_in,
)
from tests.property.exchange.test_exchange import run
from tests.tools.runtime.gates import (
    HERE,
    THERE,
)
from tests.tools.runtime.task_parts import Clock, Remembering, task_of, values_of


class Overtaken:
    """The outputs in flight of one producer, by checkpoint."""

    def __init__(self) -> None:
        self.rows: dict = {}
        self.through: dict = {}

    def complete(self, checkpoint_id, subpartition, overtaken) -> None:
        self.rows.setdefault(checkpoint_id, []).extend(values_of(overtaken))
        self.through.setdefault(checkpoint_id, set()).add(subpartition)

    def fail(self, checkpoint_id, subpartition, cause) -> None:
        self.through.pop(checkpoint_id, None)


class PriorityRemote(AlignedRemote):
    def notify_priority(self, sequence) -> None:
        self.notify_data()


class Sending(Producer):
    def __init__(self, index, rows, cuts, consumers) -> None:
        self.overtaken = Overtaken()
        super().__init__(index, rows, cuts, consumers, PartitionHooks(output_state=self.overtaken))
        self.last = 0


class Reading:
    """A consumer; `room`: batches until its own output is full."""

    def __init__(self, index, producers, where, room) -> None:
        network = connected(index, producers, where, PriorityRemote)
        self.now_ms = 0
        hooks = InputHooks(on_in_flight=self.on_in_flight)
        taken = take_barriers([network], handler, lambda: self.now_ms, plain_dumps, hooks)
        self.in_flight: dict = {}
        self.out = Remembering(room)
        self.snapshots: dict = {}
        self.whole: set = set()
        self.taken = taken
        self.task = task_of(
            [Collecting()],
            StreamOneInputProcessor(network),
            [self.out],
            Clock(),
            on_snapshot=self.on_snapshot,
        )

    def on_snapshot(self, snapshot) -> None:
        checkpoint_id = snapshot.barrier.checkpoint_id
        in_hand = values_of(batch for _, batch in snapshot.in_hand)
        self.snapshots[checkpoint_id] = seen_in(snapshot.operators["uid0"]) + in_hand
        if not self.taken.is_recording(checkpoint_id):
            self.whole.add(checkpoint_id)

    def on_in_flight(self, checkpoint_id, channels) -> None:
        found = [b for data in channels.values() for b in replayed(data, pickle.loads)]
        self.in_flight[checkpoint_id] = values_of(found)
        self.whole.add(checkpoint_id)

    def turn(self, *, is_urgent) -> None:
        if is_urgent:
            self.now_ms += 7
            self.task.notice_priority()
        self.task.process_input()


def handler(channels):
    return SingleBarrierHandler(channels, Alignment.ALTERNATING)


OPTIONS = {
    "unaligned": CheckpointOptions(is_unaligned=True),
    "late": CheckpointOptions(aligned_timeout_ms=5),
    "aligned": CheckpointOptions(aligned_timeout_ms=10**6),
}


TURNS = ["produce", "read", "read at once", "late", "trigger"]
MANY_ROWS = st.lists(st.integers(0, 99), min_size=5, max_size=40)


@settings(max_examples=400)
@given(
    st.lists(MANY_ROWS, min_size=1, max_size=3), CUTS, st.integers(1, 3), st.sampled_from([HERE, THERE]),
    st.sampled_from(sorted(OPTIONS)), st.data(),
)  # fmt: skip
def test_nothing_in_flight_is_lost_or_doubled(rows, cuts, consumers, where, kind, data):
    producers = [Sending(i, part, cuts, consumers) for i, part in enumerate(rows)]
    room = data.draw(st.sampled_from([None, 0, 1]))
    readers = [Reading(i, producers, where, room) for i in range(consumers)]
    due = [(producer, number) for number in (1, 2) for producer in producers]
    turns = st.tuples(st.sampled_from(TURNS), st.integers(0, 2))
    for turn, place in data.draw(st.lists(turns, max_size=40)):
        if turn == "produce":
            producers[place % len(producers)].task.process_input()
        elif turn.startswith("read"):
            readers[place % consumers].turn(is_urgent=turn == "read at once")
        elif turn == "late":
            producer = producers[place % len(producers)]
            for subpartition in producer.partition.subpartitions:
                subpartition.time_out_barrier(producer.last)
        elif due:
            producer, number = due.pop(0)
            producer.last = number
            producer.task.trigger_checkpoint(CheckpointBarrier(number, 0, OPTIONS[kind]))
            producer.task.process_input()
    for producer, number in due:
        producer.task.trigger_checkpoint(CheckpointBarrier(number, 0, OPTIONS[kind]))
    for reader in readers:
        reader.turn(is_urgent=True)
        reader.out.room = None
    run([one.task for one in (*producers, *readers)], [])
    for number in (1, 2):
        are_all = all(number in p.snapshots for p in producers)
        are_through = all(len(p.overtaken.through.get(number, ())) == consumers for p in producers)
        if not are_all or not are_through or not all(number in r.whole for r in readers):
            continue  # given up for the next one, or a producer had ended before
        sent = sorted(v for p in producers for v in p.snapshots[number][0])
        kept = [v for r in readers for v in r.snapshots[number] + r.in_flight.get(number, [])]
        kept += [v for p in producers for v in p.overtaken.rows[number]]
        assert sorted(kept) == sent
