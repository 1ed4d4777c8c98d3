"""InputGates: fair reading, one valve per logical input, ends told once."""

from collections import deque

import pytest

from penstock.model.errors import EngineBug
from penstock.runtime.elements import (
    IDLE,
    EndOfData,
    EndOfPartition,
    LatencyMarker,
    RowBatch,
    Watermark,
)
from penstock.runtime.input_gate import InputGates


class ListChannel:
    """Frames of one producer; `arrives` is called when a frame is taken, as the network would."""

    def __init__(self, *elements, arrives=lambda: None) -> None:
        self.elements = deque(elements)
        self.arrives = arrives
        self.is_released = False

    def poll(self):
        if not self.elements:
            return None
        self.arrives()
        return self.elements.popleft()

    def release(self) -> None:
        self.is_released = True


def gates_with(*channels, inputs=None):
    """One gate; `inputs`: logical input of each channel (all 0)."""
    woken = []
    gates = InputGates(lambda: woken.append(True))
    added = [gates.add_gate(index, 1)[0] for index in inputs or [0] * len(channels)]
    gates.start()
    for channel, source in zip(added, channels, strict=True):
        channel.connect(source)
    return gates, added, woken


def polled(gates) -> list:
    found = []
    while (got := gates.poll()) is not None:
        index, elements = got
        found += [(index, e.values[0] if isinstance(e, RowBatch) else e) for e in elements]
    return found


def rows(*values):
    return [RowBatch([value]) for value in values]


def test_channels_take_turns_one_frame_each():
    gates, _, _ = gates_with(ListChannel(*rows("a1", "a2", "a3")), ListChannel(*rows("b1", "b2")))
    assert [value for _, value in polled(gates)] == ["a1", "b1", "a2", "b2", "a3"]


def test_a_producer_that_notifies_while_it_is_read_gets_no_second_turn():
    busy, other = ListChannel(*rows("a1", "a2", "a3")), ListChannel(*rows("b1", "b2", "b3"))
    gates, added, _ = gates_with(busy, other)
    busy.arrives = added[0].notify
    assert [value for _, value in polled(gates)] == ["a1", "b1", "a2", "b2", "a3", "b3"]
    assert not gates.has_ready


def test_a_notify_wakes_once_until_the_channel_is_read():
    source = ListChannel()
    gates, added, woken = gates_with(source)
    assert polled(gates) == []
    woken.clear()
    source.elements.extend(rows(1, 2))
    added[0].notify()
    added[0].notify()
    assert woken == [True]
    assert polled(gates) == [(0, 1), (0, 2)]
    assert polled(gates) == []


def test_an_unknown_channel_is_read_when_its_producer_is_known():
    gates = InputGates(lambda: None)
    channel = gates.add_gate(0, 1)[0]
    gates.start()
    channel.notify()
    assert polled(gates) == []
    channel.connect(ListChannel(*rows("late")))
    assert polled(gates) == [(0, "late")]


def test_gates_of_a_union_share_one_valve():
    a, b = ListChannel(Watermark(10)), ListChannel(Watermark(4), Watermark(20))
    gates, _, _ = gates_with(a, b)
    assert polled(gates) == [(0, Watermark(4)), (0, Watermark(10))]
    assert len(gates.inputs) == 1


def test_two_logical_inputs_have_their_own_valves_and_ends():
    a = ListChannel(Watermark(10), EndOfData(), EndOfPartition())
    b = ListChannel(Watermark(4), IDLE)
    gates, _, _ = gates_with(a, b, inputs=[0, 1])
    assert sorted(polled(gates), key=lambda pair: pair[0]) == [
        (0, Watermark(10)), (0, EndOfData()), (1, Watermark(4)), (1, IDLE),
    ]  # fmt: skip
    assert not gates.is_finished


def test_end_of_data_comes_once_per_logical_input_after_its_last_channel():
    a = ListChannel(EndOfData(), EndOfPartition())
    b = ListChannel(*rows(1, 2, 3), EndOfData(), EndOfPartition())
    gates, _, _ = gates_with(a, b)
    assert polled(gates) == [(0, 1), (0, 2), (0, 3), (0, EndOfData())]
    assert gates.is_finished
    assert gates.inputs[0].is_ended
    assert a.is_released
    assert b.is_released


def test_a_finished_channel_is_not_read_again():
    source = ListChannel(EndOfPartition(), *rows("ghost"))
    gates, added, _ = gates_with(source)
    polled(gates)
    added[0].notify()
    assert polled(gates) == []


def test_records_are_counted_and_markers_pass():
    marker = LatencyMarker(1, "s", 0)
    gates, _, _ = gates_with(ListChannel(RowBatch([1, 2, 3]), marker))
    assert polled(gates) == [(0, 1), (0, marker)]
    assert gates.records_in == 3


def test_what_cannot_come_is_a_bug():
    gates, _, _ = gates_with(ListChannel("nonsense"))
    with pytest.raises(EngineBug, match="nonsense"):
        gates.poll()
    early = InputGates(lambda: None)
    early.add_gate(0, 1)[0].connect(ListChannel(Watermark(1)))
    with pytest.raises(EngineBug, match="before it was started"):
        early.poll()


def test_release_leaves_every_producer():
    sources = ListChannel(), ListChannel()
    gates, _, _ = gates_with(*sources)
    gates.release()
    assert all(source.is_released for source in sources)


def test_a_channel_is_made_when_somebody_asks_for_it_and_stays_the_same():
    gates = InputGates(lambda: None)
    first, second = gates.add_gate(0, 10_000), gates.add_gate(0, 3)
    assert (len(first), len(second)) == (10_000, 3)
    assert (list(first.made), list(second.made)) == ([], [])
    assert second[1] is second[-2] is second[:2][1]
    assert [channel.index for channel in second] == [10_000, 10_001, 10_002]
    assert first[9_999].index == 9_999
    assert len(list(first.made)) == 1
    with pytest.raises(IndexError):
        second[3]


def test_only_channels_that_were_made_are_released_and_all_count_for_the_end():
    gates = InputGates(lambda: None)
    channels = gates.add_gate(0, 3)
    gates.start()
    source = ListChannel(EndOfData(), EndOfPartition())
    channels[2].connect(source)
    assert polled(gates) == []
    assert not gates.is_finished
    gates.release()
    assert source.is_released
    for channel in channels[:2]:
        channel.connect(ListChannel(EndOfData(), EndOfPartition()))
    assert polled(gates) == [(0, EndOfData())]
    assert gates.is_finished
