"""What is measured of the barriers of a task's inputs: how long they took, and what was read meanwhile."""

from penstock.engine.model.checkpoints import CheckpointOptions
from penstock.engine.runtime.elements import CheckpointBarrier
from penstock.engine.runtime.network.gate.channel import BYTES_PER_ROW
from tests.tools.runtime.barrier_reading import BarrierReader, row_batch
from tests.tools.runtime.gates import ScriptedView, input_of, local_gate

ALIGNED = CheckpointBarrier(1, 0, CheckpointOptions())
UNALIGNED = CheckpointBarrier(1, 0, CheckpointOptions(is_unaligned=True))


def read_between(first, last):
    """A reader whose one channel has two rows before `first`, and the other one five rows before `last`."""
    early, late = ScriptedView([row_batch(1, 2), first]), ScriptedView([])
    reader = BarrierReader(input_of(local_gate(early, late)))
    reader.rest()
    reader.now_ms += 40
    late.add(row_batch(3, 4, 5, 6, 7), last)
    reader.rest()
    return reader


def test_an_alignment_is_measured_from_the_first_barrier_to_the_last():
    reader = read_between(ALIGNED, ALIGNED)
    assert reader.out == [1, 2, 3, 4, 5, 6, 7, (1, False)]
    assert reader.taken.alignment_ms == 40
    assert reader.taken.processed_bytes == 5 * BYTES_PER_ROW


def test_barriers_that_overtake_are_measured_up_to_the_last_too():
    reader = read_between(UNALIGNED, UNALIGNED)
    assert reader.out == [1, 2, (1, True), 3, 4, 5, 6, 7]
    assert reader.taken.alignment_ms == 40
    assert reader.taken.processed_bytes == 5 * BYTES_PER_ROW


def test_the_barrier_of_a_single_channel_waits_for_nobody():
    reader = BarrierReader(input_of(local_gate([row_batch(1, 2), ALIGNED, row_batch(3)])))
    reader.rest()
    assert (reader.taken.alignment_ms, reader.taken.processed_bytes) == (0, 0)
