"""RemoteInputChannel: sequence, bytes until the mailbox takes them, credit, missing partitions, letting go."""

import threading

import pytest

from penstock.engine.model.errors import (
    BufferReordering,
    EngineBug,
    PartitionNotFound,
    UserCodeError,
)
from penstock.engine.model.graph.job_graph import ResultPartitionType
from penstock.engine.runtime.elements import EndOfData, EndOfPartition, RowBatch, Watermark
from penstock.engine.runtime.network.gate.remote_channel import ReceiverCredit, frames_for
from penstock.engine.runtime.network.network_memory import (
    LocalBufferPool,
    NetworkMemory,
    PoolLimits,
)
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
    gate.channel(0).expected = 0xFFFFFFFF
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


def pool_of(buffers: int) -> LocalBufferPool:
    memory = NetworkMemory(
        max(1, buffers) * 1024, threading.Lock, segment_bytes=1024, max_buffer_bytes=1024
    )
    return memory.create_pool(PoolLimits(buffers, buffers))


def credit_of(exclusive: int = 2, floating: int = 8) -> tuple[ReceiverCredit, LocalBufferPool]:
    pool = pool_of(floating)
    return ReceiverCredit(exclusive, pool, lambda: False), pool


def test_a_backlog_takes_floating_buffers_and_each_is_a_credit():
    credit, pool = credit_of()
    assert credit.on_backlog(6)
    assert (credit.required, credit.available, pool.in_use) == (8, 8, 6)
    assert credit.announce() == 6
    assert not credit.on_backlog(6)
    assert not credit.on_backlog(0)
    assert pool.in_use == 6


def test_when_the_pool_is_used_up_the_channel_waits_once():
    credit, pool = credit_of(floating=3)
    credit.on_backlog(6)
    assert (credit.unannounced, credit.is_waiting, pool.in_use) == (3, True, 3)
    credit.on_backlog(7)
    assert credit.unannounced == 3


def test_frames_fill_floating_buffers_before_exclusive_ones():
    credit, _ = credit_of(exclusive=1, floating=1)
    credit.on_backlog(1)
    assert [credit.take(), credit.take()] == [True, False]
    with pytest.raises(EngineBug, match="without credit"):
        credit.take()


def test_an_exclusive_buffer_that_is_empty_again_is_a_credit():
    credit, _ = credit_of()
    credit.on_backlog(0)
    credit.take()
    assert credit.recycle_exclusive() == (False, True)
    assert (credit.unannounced, credit.available) == (1, 2)


def test_with_more_than_required_a_floating_buffer_is_given_back_instead():
    credit, _ = credit_of()
    credit.on_backlog(2)
    for _ in range(3):
        credit.take()
    credit.on_backlog(0)  # two are required, one exclusive one is at hand
    credit.announce()
    credit.available_floating = 1
    assert credit.recycle_exclusive() == (True, False)
    assert (credit.unannounced, credit.available) == (0, 2)


def test_an_offered_buffer_is_refused_when_it_is_not_needed_any_more():
    credit, pool = credit_of(floating=0)
    credit.on_backlog(1)
    assert credit.is_waiting
    credit.required = 2
    assert credit.on_floating_offered() == (False, False)
    assert not credit.is_waiting
    assert pool.in_use == 0


def test_with_an_offered_buffer_the_channel_asks_on():
    credit, pool = credit_of(floating=2)
    pool.request()
    pool.request()
    credit.on_backlog(3)
    assert credit.is_waiting
    pool.in_use = 1  # both come back, one of them is offered
    assert credit.on_floating_offered() == (True, True)
    assert (credit.unannounced, credit.is_waiting, pool.in_use) == (2, True, 2)


def test_only_the_first_gain_makes_a_message_due_and_it_carries_all():
    credit, _ = credit_of()
    assert credit.gain(3)
    assert not credit.gain(2)
    assert credit.announce() == 5
    assert not credit.gain(0)


def test_a_message_waits_while_the_sender_has_more_than_it_would_bring():
    credit, _ = credit_of(exclusive=4)
    assert not credit.is_worth_telling
    credit.take()
    credit.recycle_exclusive()
    assert not credit.is_worth_telling  # 1 to tell, 3 left
    credit.take()
    credit.recycle_exclusive()
    assert credit.is_worth_telling  # 2 to tell, 2 left
    credit.announce()
    assert credit.outstanding == 4


def test_without_exclusive_buffers_credit_comes_of_the_backlog_alone():
    credit, _ = credit_of(exclusive=0, floating=4)
    assert credit.available == 0
    assert credit.on_backlog(2)
    assert credit.is_worth_telling
    assert credit.announce() == 2


def test_a_destroyed_pool_gives_nothing():
    credit, pool = credit_of()
    pool.destroy()
    assert not credit.on_backlog(6)
    assert not credit.is_waiting


def test_a_channel_that_lets_go_waits_for_nothing_and_says_what_it_had():
    credit, pool = credit_of(floating=2)
    credit.on_backlog(6)
    assert credit.release_floating() == 2
    assert not credit.is_waiting
    assert credit.available_floating == 0
    assert pool.add_listener(lambda: True), "nobody is before it"


def test_one_credit_is_not_worth_a_message_while_the_sender_has_one():
    credit, _ = credit_of(exclusive=2, floating=0)
    credit.take()
    credit.recycle_exclusive()
    assert (credit.unannounced, credit.outstanding) == (1, 1)
    assert not credit.is_worth_telling
    credit.take()
    assert credit.is_worth_telling, "it has none left"


def test_a_sender_without_credit_is_told_of_one_at_once():
    credit, _ = credit_of(exclusive=1, floating=0)
    credit.take()
    assert not credit.is_worth_telling
    credit.recycle_exclusive()
    assert credit.is_worth_telling


# ---------------------------------------------------------------------- few records may wait


def test_with_a_limit_only_so_many_frames_wait_or_are_on_their_way():
    credit = ReceiverCredit(2, pool_of(8), lambda: False, most=1)
    assert credit.outstanding == 1
    credit.on_backlog(6)
    assert not credit.is_worth_telling
    credit.take()
    assert not credit.is_worth_telling
    credit.filled -= 1
    assert credit.is_worth_telling
    assert credit.announce() == 1
    assert not credit.is_worth_telling


def test_what_was_held_back_is_told_when_the_limit_is_lifted():
    credit = ReceiverCredit(2, pool_of(8), lambda: False, most=1)
    credit.on_backlog(6)
    credit.most = None
    assert credit.is_worth_telling
    assert credit.announce() == 7
    assert credit.outstanding == 8


def test_a_few_frames_hold_what_may_wait():
    assert [frames_for(rows) for rows in (None, 1, 3, 4, 10_000)] == [None, 1, 3, 4, 4]
