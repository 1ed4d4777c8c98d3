"""RemoteInputChannel: sequence, bytes until the mailbox takes them, credit, missing partitions, letting go."""

import pytest

from penstock.engine.model.errors import (
    BufferReordering,
    EngineBug,
    PartitionNotFound,
    UserCodeError,
)
from penstock.engine.model.graph.job_graph import ResultPartitionType
from penstock.engine.runtime.elements import EndOfData, EndOfPartition, RowBatch, Watermark
from tests.tools.runtime.gates import (
    THERE,
    Client,
    Host,
    Sender,
    context_of,
    descriptor,
    drained_gate,
    gate_of,
    remote_gate,
    result_id,
    row_batches,
)


def one_channel(**settings):
    host = Host()
    gate, (sender,) = remote_gate(1, context_of(host, **settings))
    return gate, sender, host.clients[gate.channel(0)], host


def test_elements_come_out_in_order_and_count():
    gate, sender, _, _ = one_channel()
    sender.send(RowBatch(["a"]))
    sender.send(Watermark(5))
    sender.send(EndOfPartition())
    channel = gate.channel(0)
    assert channel.queued_bytes > 0
    assert drained_gate(gate) == ["a", Watermark(5), EndOfPartition()]
    assert channel.queued_bytes == 0
    assert channel.buffers_in == 3
    assert gate.bytes_in == gate.remote_bytes_in == channel.bytes_in > 8


@pytest.mark.parametrize("received", [[0, 1, 3], [0, 0], [1]])
def test_a_gap_or_repetition_is_told_after_what_came_in_order(received):
    gate, sender, _, _ = one_channel()
    for sequence in received:
        sender.sequence = sequence
        sender.send(Watermark(sequence))
    good = len(received) - 1
    assert [gate.poll().element for _ in range(good)] == [Watermark(i) for i in range(good)]
    with pytest.raises(BufferReordering, match=f"came where {good} was due"):
        gate.poll()


def test_sequence_numbers_wrap():
    gate, sender, _, _ = one_channel()
    gate.channel(0)._expected = 0xFFFFFFFF
    for sequence in (0xFFFFFFFF, 0):
        sender.sequence = sequence
        sender.send(Watermark(sequence))
    assert len(drained_gate(gate)) == 2


def test_data_without_credit_is_an_error_of_the_channel_alone():
    gate, sender, _, _ = one_channel(floating_per_gate=1)
    for batch in row_batches(1, 2, 3, 4):
        sender.send(batch)
    assert [gate.poll().element.values for _ in range(3)] == [[1], [2], [3]]
    with pytest.raises(EngineBug, match="without credit"):
        gate.poll()


def test_the_end_of_a_partition_does_not_hide_an_error_before_it():
    gate, sender, _, _ = one_channel(floating_per_gate=1)
    for element in (*row_batches(1, 2, 3, 4), EndOfData(), EndOfPartition()):
        sender.send(element)
    with pytest.raises(EngineBug, match="without credit"):
        drained_gate(gate)
    assert not gate.is_finished


def test_events_need_no_credit():
    gate, sender, _, _ = one_channel()
    for stamp in range(10):
        sender.send(Watermark(stamp))
    assert len(drained_gate(gate)) == 10


def test_the_backlog_brings_credit_and_reading_brings_it_back():
    gate, sender, client, _ = one_channel()
    sender.send(RowBatch([0]), backlog=5)
    assert client.credits == [6]  # 5 + 2 are required, of which one is there
    gate.poll()
    assert gate.channel(0).credit.available == 7  # the empty one replaces a floating one
    assert gate.pool.in_use == 5


def test_channels_share_the_floating_buffers_and_the_one_that_waits_gets_what_comes_back():
    host = Host()
    gate, (first, second) = remote_gate(
        2, context_of(host, buffers_per_channel=1, floating_per_gate=2)
    )
    clients = [host.clients[gate.channel(place)] for place in (0, 1)]
    first.send(RowBatch(["a1"]), backlog=2)
    assert clients[0].credits == [2]
    second.send(RowBatch(["b1"]), backlog=2)
    assert clients[1].credits == []
    first.send(RowBatch(["a2"]), backlog=0)
    assert gate.pool.in_use == 2
    while gate.poll() is not None:
        pass
    assert sum(clients[1].credits) >= 2  # its exclusive buffer, and a floating one of the first


def test_a_channel_that_is_read_no_more_takes_at_most_its_buffers():
    gate, sender, client, _ = one_channel()
    credit = gate.channel(0).first_credit
    for number in range(1000):
        credit += sum(client.credits)
        client.credits.clear()
        if not credit:
            break
        credit -= 1
        sender.send(RowBatch([number]), backlog=1000)
    assert number == 10  # two exclusive and eight floating ones
    assert gate.channel(0).buffers_in_use > 10


def test_a_missing_partition_is_asked_about_and_then_asked_for_again():
    gate, _, _, host = one_channel()
    channel = gate.channel(0)
    channel.on_not_found()
    ((partition_id, retry),) = host.questions
    assert partition_id == result_id(0)
    retry()
    assert len(host.requests) == 2
    retry()  # 2 x 10 s at the producer's: that was long enough
    assert len(host.requests) == 2
    with pytest.raises(PartitionNotFound, match="tm-there"):
        gate.poll()


def test_without_a_wait_at_the_producers_the_tries_are_apart():
    gate, _, _, host = one_channel(request_timeout_ms=0, initial_backoff_ms=100, max_backoff_ms=200)
    channel = gate.channel(0)
    channel.retry()
    assert host.timers[0][0] == 100
    host.advance(100)
    assert len(host.requests) == 2
    channel.retry()
    host.advance(300)
    channel.retry()
    with pytest.raises(PartitionNotFound):
        gate.poll()


def test_letting_go_gives_everything_back():
    host = Host()
    context = context_of(host)
    gate, (sender,) = remote_gate(1, context)
    sender.send(RowBatch([0]), backlog=5)
    channel, client = gate.channel(0), host.clients[gate.channel(0)]
    channel.release()
    channel.release()
    assert client.is_cancelled
    assert gate.pool.in_use == 0
    assert context.memory.buffers_in_use == 0
    sender.send(RowBatch([1]))
    channel.on_backlog(9)
    channel.on_not_found()
    assert channel.queued_bytes == 0
    assert gate.pool.in_use == 0
    assert host.questions == []


def test_a_channel_that_is_gone_when_it_is_connected_is_not_asked_for():
    host = Host()
    host.connects = False
    gate = gate_of(1, context_of(host))
    gate.update_channel(0, descriptor(0, THERE), 0)
    gate.request_partitions()
    channel = gate.channel(0)
    gate.close()
    assert not channel.on_connected(object())
    channel.request()
    assert len(host.requests) == 1


def test_the_size_of_buffers_is_told_to_producers_when_it_changes():
    host = Host()
    context = context_of(host, memory_bytes=32 << 20)
    gate, _ = remote_gate(1, context)
    client = host.clients[gate.channel(0)]
    assert gate.buffer_bytes == 1 << 20
    others = [gate_of(1, context, index) for index in range(1, 6)]
    assert gate.buffer_bytes == client.sizes[-1] < 1 << 20
    for other in others:
        other.close()
    assert client.sizes[-1] == 1 << 20
    gate.debloat_to(300_000)
    assert gate.buffer_bytes == client.sizes[-1] == 300_000


def test_a_gate_without_exclusive_buffers_lives_of_what_the_sender_announces():
    host = Host()
    gate = gate_of(400, context_of(host), 0, ResultPartitionType.BLOCKING)
    assert gate.buffers.exclusive == 2
    capped = context_of(host, max_required_per_gate=4)
    gate = gate_of(4, capped, 1)
    assert gate.buffers.exclusive == 0
    gate.update_channel(0, descriptor(0, THERE), 0)
    gate.request_partitions()
    channel = gate.channel(0)
    assert channel.first_credit == 0
    channel.on_backlog(2)
    assert host.clients[channel].credits == [2]
    Sender(channel).send(RowBatch([7]), backlog=1)
    assert drained_gate(gate) == [7]


def test_the_producers_own_error_comes_as_it_is():
    gate, sender, _, _ = one_channel()
    sender.send(RowBatch([1]))
    gate.channel(0).on_error(UserCodeError("it cannot be pickled"))
    assert gate.poll().element.values == [1]
    with pytest.raises(UserCodeError, match="pickled"):
        gate.poll()


# ---------------------------------------------------------------------- few records may wait


def limited(rows):
    """A channel whose request is not sent yet, of a task for which so many records may wait."""
    host = Host()
    host.connects = False
    context = context_of(host)
    context.in_flight.rows = rows
    gate = gate_of(1, context)
    context.in_flight.add(gate)
    gate.update_channel(0, descriptor(0, THERE), 0)
    gate.request_partitions()
    return gate, gate.channel(0), Client()


def test_the_request_says_how_many_records_may_wait_and_gives_little_credit():
    _, channel, _ = limited(1)
    assert (channel.row_limit, channel.first_credit) == (1, 1)


def test_a_producer_that_is_not_there_yet_is_told_nothing_that_it_would_miss():
    """Its request may wait for the partition; a limit and credit are told when the first frame has come."""
    gate, channel, client = limited(1)
    channel.on_connected(client)
    gate.context.in_flight.announce(None)
    assert (client.credits, client.row_limits) == ([], [])
    Sender(channel).send(RowBatch(["a"]))
    assert client.row_limits == [None]
    assert drained_gate(gate) == ["a"]
    assert sum(client.credits) == gate.buffers.exclusive


def test_the_backlog_of_a_producer_without_credit_is_an_answer_too():
    gate, channel, client = limited(1)
    channel.on_connected(client)
    gate.context.in_flight.announce(50)
    channel.on_backlog(3)
    assert client.row_limits == [50]


def test_another_limit_is_told_with_the_credit_that_it_allows():
    gate, channel, client = limited(1)
    channel.on_connected(client)
    Sender(channel).send(RowBatch(["a"]))
    assert drained_gate(gate) == ["a"]
    gate.context.in_flight.announce(100)
    assert client.row_limits == [100]
    assert sum(client.credits) == min(4, gate.buffers.exclusive)
