"""SingleInputGate: turns, priority, ends, errors, closing, channels made when asked for
(docs/spec/exchange.md#input-gate).
"""

import pyarrow as pa
import pytest

from penstock.engine.model.errors import (
    EngineBug,
    ExternalError,
    InsufficientBuffers,
    PartitionNotFound,
)
from penstock.engine.model.graph.job_graph import ResultPartitionType
from penstock.engine.runtime.elements import (
    ColumnBatch,
    EndOfData,
    EndOfPartition,
    RowBatch,
    Watermark,
)
from penstock.engine.runtime.network.gate.channel import UnknownInputChannel
from penstock.engine.runtime.network.gate.ports import InputClosed
from penstock.engine.runtime.network.gate.single import EndOfDataStatus, SingleInputGate
from tests.tools.runtime.gates import (
    HERE,
    THERE,
    GateListener,
    Host,
    ScriptedView,
    context_of,
    descriptor,
    drained_gate,
    gate_of,
    local_gate,
    remote_gate,
    result_id,
    row_batches,
)


def test_channels_take_turns_one_element_each():
    gate = local_gate(row_batches("a1", "a2", "a3"), row_batches("b1"), row_batches("c1", "c2"))
    assert drained_gate(gate) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_a_producer_that_notifies_while_it_is_read_gets_no_second_turn():
    busy = ScriptedView(row_batches("a1", "a2", "a3"))
    gate = local_gate(busy, row_batches("b1", "b2", "b3"))
    busy.on_poll = lambda: gate.channel(0).notify_data()
    assert drained_gate(gate) == ["a1", "b1", "a2", "b2", "a3", "b3"]
    assert not gate.is_available


def test_the_reader_is_told_of_the_first_element_only():
    views = [ScriptedView(), ScriptedView()]
    gate = local_gate(*views)
    drained_gate(gate)
    told = gate.listener.available
    views[0].add(*row_batches(1))
    views[1].add(*row_batches(2))
    views[0].add(*row_batches(3))
    assert gate.listener.available == told + 1
    assert gate.is_available
    assert drained_gate(gate) == [1, 2, 3]
    assert not gate.is_available
    views[1].add(*row_batches(4))
    assert gate.listener.available == told + 2


def test_the_polled_channel_is_known():
    gate = local_gate(row_batches("a"), row_batches("b"))
    seen = []
    while gate.poll() is not None:
        seen.append(gate.last_channel)
    assert seen == [0, 1]


def test_a_channel_with_priority_goes_first_and_then_to_the_tail():
    gate, (first, second) = remote_gate(2)
    for sender, values in ((first, ("a1", "a2")), (second, ("b1",))):
        for batch in row_batches(*values):
            sender.send(batch)
    second.send(Watermark(7), has_priority=True)
    assert gate.listener.priority == 1
    assert drained_gate(gate) == [Watermark(7), "a1", "b1", "a2"]


def test_news_of_an_element_with_priority_that_was_polled_already_changes_nothing():
    gate, (first, second) = remote_gate(2)
    second.send(Watermark(7), has_priority=True)
    assert drained_gate(gate) == [Watermark(7)]
    first.send(*row_batches("a"))
    second.send(*row_batches("b"))
    gate.channel(1).notify_priority(0)
    assert drained_gate(gate) == ["a", "b"]


def test_sequence_numbers_of_priority_elements_wrap():
    gate, senders = remote_gate(2)
    gate.channel(1).last_priority = 0xFFFFFFFF
    senders[0].send(*row_batches("a"))
    senders[1].send(*row_batches("b"))
    gate.channel(1).notify_priority(0)  # newer than 2^32 - 1
    assert drained_gate(gate) == ["b", "a"]


def test_a_finished_gate_is_available_for_ever():
    gate = local_gate([EndOfData(), EndOfPartition()], [EndOfData(), EndOfPartition()])
    for _ in range(3):
        assert gate.poll() is not None
    assert not gate.is_finished
    told = gate.listener.available
    assert gate.poll().element == EndOfPartition()
    assert gate.is_finished
    assert gate.is_available
    assert gate.listener.available == told + 1
    assert gate.poll() is None
    assert gate.is_available


@pytest.mark.parametrize(
    ("drains", "expected"),
    [
        ((True, True), EndOfDataStatus.DRAINED),
        ((True, False), EndOfDataStatus.STOPPED),
        ((False, False), EndOfDataStatus.STOPPED),
    ],
)
def test_data_are_drained_only_if_every_channel_drained(drains, expected):
    gate = local_gate(*([EndOfData(drain=drain)] for drain in drains))
    assert gate.end_of_data is EndOfDataStatus.NOT_END_OF_DATA
    gate.poll()
    assert gate.end_of_data is EndOfDataStatus.NOT_END_OF_DATA
    gate.poll()
    assert gate.end_of_data is expected


def test_a_channel_ends_its_data_once():
    gate = local_gate([EndOfData(), EndOfData()], [])
    gate.poll()
    with pytest.raises(EngineBug, match="ended its data twice"):
        gate.poll()


def test_an_ended_channel_is_released_and_not_read_again():
    view = ScriptedView([EndOfPartition(), *row_batches("ghost")])
    gate = local_gate(view, [])
    assert drained_gate(gate) == [EndOfPartition()]
    assert view.is_released
    gate.channel(0).notify_data()
    gate.channel(0).notify_priority(9)
    assert drained_gate(gate) == []


def test_an_error_comes_out_where_the_channel_is_read():
    gate = local_gate(
        ScriptedView(row_batches("a"), error=ExternalError("broken")), row_batches("b")
    )
    assert [gate.poll().element.values, gate.poll().element.values] == [["a"], ["b"]]
    gate.channel(0).notify_data()
    with pytest.raises(ExternalError, match="broken"):
        gate.poll()


def test_an_error_makes_a_silent_channel_readable_and_the_first_one_counts():
    gate = local_gate([], [])
    gate.channel(1).on_error(ValueError("first"))
    gate.channel(1).on_error(ExternalError("second"))
    assert gate.is_available
    with pytest.raises(ExternalError, match="ValueError: first"):
        drained_gate(gate)


def test_a_request_that_fails_is_an_error_of_its_channel():
    class Refusing(Host):
        def request(self, channel, location):
            raise OSError("no route")

    gate = gate_of(2, context_of(Refusing()))
    gate.update_channel(0, descriptor(0, THERE), 0)
    gate.request_partitions()
    with pytest.raises(ExternalError, match="no route"):
        gate.poll()


def test_partitions_are_requested_once_and_never_after_closing():
    host = Host()
    host.views[result_id(0)] = ScriptedView()
    gate = gate_of(1, context_of(host))
    gate.update_channel(0, descriptor(0), 0)
    assert host.asked_views == []
    gate.request_partitions()
    gate.request_partitions()
    assert host.asked_views == [result_id(0)]
    gate.close()
    with pytest.raises(EngineBug, match="after it was closed"):
        gate.request_partitions()


def test_who_reads_a_closed_gate_is_unwound():
    views = [ScriptedView(row_batches("a")), ScriptedView()]
    gate = local_gate(*views)
    told = gate.listener.available
    gate.close()
    gate.close()
    assert gate.listener.available == told + 1
    assert all(view.is_released for view in views)
    assert gate.pool.is_destroyed
    with pytest.raises(InputClosed):
        gate.poll()


def test_a_gate_of_ten_thousand_costs_nothing_until_it_is_connected():
    gate = gate_of(10_000, context_of())
    assert list(gate.made) == []
    assert gate.channel(9_999).index == 9_999
    assert gate.channel(7) is gate.channel(7)
    assert len(list(gate.made)) == 2
    with pytest.raises(IndexError):
        gate.channel(10_000)


def test_an_update_turns_a_channel_local_or_remote_once():
    gate = gate_of(3)
    gate.update_channel(0, descriptor(0, HERE), 0)
    gate.update_channel(1, descriptor(1, THERE), 0)
    gate.update_channel(2, descriptor(2, None), 0)
    made = [gate.channel(place) for place in range(3)]
    assert [type(one).__name__ for one in made] == [
        "LocalInputChannel", "RemoteInputChannel", "UnknownInputChannel",
    ]  # fmt: skip
    gate.update_channel(0, descriptor(0, THERE), 0)
    assert gate.channel(0) is made[0]


def test_what_becomes_known_after_the_request_is_asked_for_at_once():
    host = Host()
    gate = gate_of(2, context_of(host))
    gate.request_partitions()
    host.views[result_id(0)] = ScriptedView(row_batches("late"))
    gate.update_channel(0, descriptor(0), 0)
    gate.update_channel(1, descriptor(1, THERE), 0)
    assert host.asked_views == [result_id(0)]
    assert [one.index for one, _ in host.requests] == [1]
    assert drained_gate(gate) == ["late"]


def test_task_events_are_replayed_to_producers_that_become_known():
    host = Host()
    gate = gate_of(3, context_of(host))
    gate.request_partitions()
    host.views[result_id(0)] = ScriptedView()
    gate.update_channel(0, descriptor(0), 0)
    gate.send_task_event("first")
    gate.send_task_event("second")
    gate.update_channel(1, descriptor(1, THERE), 0)
    host.views[result_id(2)] = ScriptedView()
    gate.update_channel(2, descriptor(2), 0)
    assert host.events == [(result_id(place), e) for place in (0, 2) for e in ("first", "second")]
    assert host.clients[gate.channel(1)].events == ["first", "second"]


def test_an_unknown_channel_cannot_be_read():
    channel = gate_of(1).channel(0)
    assert isinstance(channel, UnknownInputChannel)
    with pytest.raises(EngineBug, match="before its producer's location was known"):
        channel.poll()


def test_a_channel_is_resumed_while_the_gate_goes_on():
    view = ScriptedView([EndOfPartition()])
    gate = local_gate(view)
    gate.resume(0)
    assert view.resumed == 1
    drained_gate(gate)
    with pytest.raises(EngineBug, match="so it cannot be resumed"):
        gate.resume(0)


def test_the_last_record_is_acknowledged_when_the_end_of_the_data_is_read():
    view = ScriptedView([RowBatch([1]), EndOfData(), EndOfPartition()])
    gate = local_gate(view)
    for is_read_whole in (False, True, True):
        gate.poll()
        assert view.is_read_whole is is_read_whole


def test_a_gate_is_set_up_once_and_not_used_before():
    gate = SingleInputGate(0, 1, context_of(), GateListener())
    with pytest.raises(EngineBug, match="before it was set up"):
        _ = gate.pool
    gate.setup()
    with pytest.raises(EngineBug, match="set up twice"):
        gate.setup()


def test_a_gate_that_does_not_fit_is_refused():
    with pytest.raises(InsufficientBuffers, match=r"taskmanager\.memory\.network"):
        gate_of(1000, context_of(memory_bytes=1 << 20), 0, ResultPartitionType.BLOCKING)


def test_exclusive_buffers_come_with_a_remote_channel_and_go_with_it():
    context = context_of(memory_bytes=32 * (32 << 10))
    gate = gate_of(20, context)  # 1 floating buffer is required
    for place in range(15):
        gate.update_channel(place, descriptor(place, THERE), 0)
    with pytest.raises(InsufficientBuffers, match="required 2, but only 1 available"):
        gate.update_channel(15, descriptor(15, THERE), 0)
    gate.channel(0).release()
    gate.update_channel(16, descriptor(16, THERE), 0)


def test_a_partition_that_is_not_found_here_is_asked_for_again_with_back_off():
    host = Host()
    gate = gate_of(1, context_of(host, initial_backoff_ms=100, max_backoff_ms=400))
    gate.update_channel(0, descriptor(0), 0)
    gate.request_partitions()
    times = []
    while host.timers:
        times.append(host.timers[0][0])
        host.advance(times[-1])
    assert times == [100, 300, 700]
    with pytest.raises(PartitionNotFound):
        gate.poll()


def test_rows_of_the_same_process_are_counted_by_a_guess_and_columns_by_what_some_weigh():
    columns = ColumnBatch(pa.record_batch({"a": pa.array([1, 2, 3, 4])}))
    gate = local_gate([RowBatch([1, 2]), columns, columns.slice(0, 1), Watermark(1)])
    drained_gate(gate)
    assert gate.bytes_in == 2 * 64 + 4 * 8 + 8
    assert gate.remote_bytes_in == 0


def test_a_partition_that_comes_ends_the_wait():
    host = Host()
    gate = gate_of(1, context_of(host))
    gate.update_channel(0, descriptor(0), 0)
    gate.request_partitions()
    host.arrive(result_id(0), ScriptedView(row_batches("here")))
    assert drained_gate(gate) == ["here"]
    host.advance(100)
    assert host.timers == []
