"""Flow control under any schedule: producers, one connection, gates and their pools, simulated in one thread.

Real subpartitions, senders, channels, gates and network memory; only the socket is a list. Whatever is scheduled:
credit is conserved, what a TaskManager holds stays within its buffers, each channel keeps its order, and who is
not read holds up nobody but its own producer.
"""

import pickle
import random
import threading
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.hosting.network.frames import FrameType
from penstock.engine.hosting.network.producer_side import RemoteView
from penstock.engine.runtime.codecs.events import FrameKind
from penstock.engine.runtime.elements import EndOfData, RowBatch, Watermark
from penstock.engine.runtime.network.gate.ports import GateContext
from penstock.engine.runtime.network.gate.remote_channel import RemoteInputChannel
from penstock.engine.runtime.network.gate.single import SingleInputGate
from penstock.engine.runtime.network.network_memory import NetworkMemory
from penstock.engine.runtime.network.network_settings import NetworkSettings
from penstock.engine.runtime.network.partition.result_partition import (
    PartitionHooks,
    pipelined_partition,
    pool_of,
)
from tests.tools.runtime.gates import HERE, THERE, GateListener, descriptor, result_id

BUFFER = 4096
RECORD = 700  # bytes: five of them fill a buffer


class Manager:
    def register(self, partition) -> None: ...
    def release(self, partition_id, failure=None) -> None: ...


class Link:
    """One connection: frames to the consumers, messages to the producers, both in order."""

    is_closed = is_congested = False

    def __init__(self) -> None:
        self.frames: deque = deque()
        self.messages: deque = deque()
        self.views: dict[int, RemoteView] = {}
        self.channels: dict[int, RemoteInputChannel] = {}

    def send(self, frame_type, number, parts, header=(0, 0, 0)) -> None:
        payload = b"".join(bytes(memoryview(part)) for part in parts)
        self.frames.append((frame_type, number, payload, header))

    def deliver_frame(self) -> None:
        frame_type, number, payload, (kind, sequence, backlog) = self.frames.popleft()
        channel = self.channels[number]
        if frame_type is FrameType.DATA:
            channel.on_frame(kind, sequence, payload, backlog)
        else:
            assert frame_type is FrameType.BACKLOG
            channel.on_backlog(backlog)

    def deliver_message(self) -> None:
        number, action, value = self.messages.popleft()
        if action == "credit":
            self.views[number].add_credit(value)
        elif action == "size":
            self.views[number].new_buffer_size(value)
        elif action == "read":
            self.views[number].acknowledge_all_records()
        elif action == "cancel":
            self.views[number].release()


class Client:
    def __init__(self, link: Link, number: int) -> None:
        self.link = link
        self.number = number

    def add_credit(self, credit) -> None:
        assert credit > 0
        self.link.messages.append((self.number, "credit", credit))

    def new_buffer_size(self, size) -> None:
        self.link.messages.append((self.number, "size", size))

    def acknowledge_all_records(self) -> None:
        self.link.messages.append((self.number, "read", 0))

    def cancel(self) -> None:
        self.link.messages.append((self.number, "cancel", 0))


class World:
    """`gates` tasks at one end read `channels` producers each at the other, over one connection."""

    def __init__(self, gates: int, channels: int, per_channel: int, floating: int, cap: int | None):
        network = NetworkSettings(
            buffers_per_channel=per_channel, floating_per_gate=floating, max_required_per_gate=cap
        )
        self.link = Link()
        self.there = self._memory()
        self.here = self._memory()
        self.context = GateContext(HERE, network, self.here, self, threading.Lock, pickle.loads)
        self.gates = [
            SingleInputGate(i, channels, self.context, GateListener()) for i in range(gates)
        ]
        self.parts = []
        self.written: list[int] = []
        self.read: list[list[int]] = []
        for gate in self.gates:
            gate.setup()
            for place in range(channels):
                part = pipelined_partition(
                    result_id(len(self.parts)), 1, BUFFER, PartitionHooks(), threading.Lock
                )
                part.setup(Manager(), pool_of(part, self.there, network))
                self.parts.append(part)
                self.written.append(0)
                self.read.append([])
                gate.update_channel(place, descriptor(len(self.parts) - 1, THERE), 0)
            gate.request_partitions()

    @staticmethod
    def _memory() -> NetworkMemory:
        return NetworkMemory(
            1000 * BUFFER, threading.Lock, segment_bytes=BUFFER, max_buffer_bytes=BUFFER
        )

    def request(self, channel, location) -> None:
        """As the host of the channels: connect at once."""
        number = channel.partition_id.partition_id.index
        self.link.channels[number] = channel
        channel.on_connected(Client(self.link, number))
        view = RemoteView(self.link, number, channel.first_credit, _fail, lambda _size: None)
        self.link.views[number] = view
        view.start(self.parts[number].create_view(0, view), channel.gate.buffer_bytes)

    # ------------------------------------------------------------------ steps

    def produce(self, number: int, records: int) -> None:
        part = self.parts[number]
        if not part.is_available:
            return
        first = self.written[number]
        values = [(value, "x" * (RECORD - 20)) for value in range(first, first + records)]
        part.subpartitions[0].write(RowBatch(values))
        self.written[number] += records
        if records % 2:
            part.subpartitions[0].add(Watermark(first))
        part.flush()

    def poll(self, index: int) -> bool:
        gate = self.gates[index]
        polled = gate.poll()
        if polled is None:
            return False
        if isinstance(polled.element, RowBatch):
            number = gate.channel(gate.last_channel).partition_id.partition_id.index
            self.read[number] += [value for value, _ in polled.element.values]
        return True

    def step(self, action: int, which: int, stuck: int) -> None:
        if action <= 2:
            self.produce(which % len(self.parts), 1 + which % 7)
        elif action == 3 and self.link.frames:
            self.link.deliver_frame()
        elif action == 4 and self.link.messages:
            self.link.deliver_message()
        elif action == 5 and which % len(self.gates) != stuck:
            self.poll(which % len(self.gates))
        elif action == 6:
            self.gates[which % len(self.gates)].debloat_to(BUFFER >> which % 5)

    def settle(self, stuck: int) -> None:
        """Until nothing moves any more."""
        moved = True
        while moved:
            moved = False
            while self.link.frames:
                self.link.deliver_frame()
                moved = True
            while self.link.messages:
                self.link.deliver_message()
                moved = True
            for index in range(len(self.gates)):
                while index != stuck and self.poll(index):
                    moved = True
            self.check()

    # ------------------------------------------------------------------ what always holds

    def check(self) -> None:
        on_the_way = [0] * len(self.parts)
        for frame_type, number, _, header in self.link.frames:
            if frame_type is FrameType.DATA and header[0] <= FrameKind.COLUMNS:
                on_the_way[number] += 1
        for number, action, value in self.link.messages:
            if action == "credit":
                on_the_way[number] += value
        for number, channel in self.link.channels.items():
            if channel.is_released:
                continue
            credit = channel.credit
            sender = self.link.views[number]
            assert sender.credit >= 0
            assert min(credit.available_exclusive, credit.available_floating) >= 0
            known = sender.credit + on_the_way[number] + credit.unannounced
            assert known == credit.available, "a credit was lost or made"
        for gate in self.gates:
            self._check_gate(gate)

    @staticmethod
    def _check_gate(gate: SingleInputGate) -> None:
        channels = [gate.channel(place) for place in range(gate.channels)]
        frames = [f for c in channels for f in c.frames if f.is_floating is not None]
        floating = sum(f.is_floating for f in frames)
        floating += sum(c.credit.available_floating for c in channels)
        assert floating == gate.pool.in_use <= gate.buffers.total_floating
        bound = gate.channels * gate.buffers.exclusive + gate.buffers.total_floating
        assert len(frames) <= bound
        assert sum(len(f.payload) for f in frames) <= bound * BUFFER


def _fail(error: Exception) -> None:
    raise error


STEPS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 40)), max_size=150)


@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(1, 4),
    st.sampled_from([None, 1, 3]),
    STEPS,
)
def test_whatever_is_scheduled_memory_is_bounded_and_everything_arrives_in_order(
    gates, channels, per_channel, floating, cap, steps
):
    world = World(gates, channels, per_channel, floating, cap)
    for action, which in steps:
        world.step(action, which, stuck=-1)
        world.check()
    for part in world.parts:
        part.notify_end_of_data(EndOfData())
        part.finish()
    world.settle(stuck=-1)
    assert world.read == [list(range(count)) for count in world.written]
    assert all(gate.is_finished for gate in world.gates)
    assert all(part.is_read_whole for part in world.parts)
    assert all(gate.pool.in_use == 0 for gate in world.gates)
    assert world.here.buffers_in_use == 0
    assert world.there.buffers_in_use == 0


@pytest.mark.parametrize("seed", range(12))
def test_long_runs_keep_the_same_laws(seed):
    chance = random.Random(seed)
    per_channel, floating = chance.randint(0, 2), chance.randint(1, 6)
    world = World(chance.randint(1, 3), chance.randint(1, 4), per_channel, floating, None)
    for _ in range(600):
        world.step(chance.randint(0, 6), chance.randint(0, 40), stuck=-1)
        world.check()
    assert sum(world.written) > 20
    world.settle(stuck=-1)
    assert world.read == [list(range(count)) for count in world.written]


@given(st.integers(2, 4), st.integers(1, 2), st.integers(0, 2), st.integers(1, 4), STEPS)
def test_a_task_that_does_not_read_holds_up_its_own_producers_only(
    gates, channels, per_channel, floating, steps
):
    world = World(gates, channels, per_channel, floating, None)
    for action, which in steps:
        world.step(action, which, stuck=0)
        world.check()
    for _ in range(60):  # every producer as much as it may
        for number in range(len(world.parts)):
            world.produce(number, 5)
        world.settle(stuck=0)
    held_up = [not part.is_available for part in world.parts]
    assert held_up == [number < channels for number in range(len(world.parts))]
    for number, count in enumerate(world.written):
        if number >= channels:
            assert world.read[number] == list(range(count))
            assert count > 250
    world.settle(stuck=-1)
    assert world.read == [list(range(count)) for count in world.written]


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(0, 3)), max_size=40),
)
def test_a_channel_that_has_something_waits_for_one_turn_of_each_other_channel_at_most(
    channels, steps
):
    world = World(1, channels, 2, 8, None)
    gate = world.gates[0]
    waiting: dict[int, int] = {}

    def poll() -> bool:
        nonlocal waiting
        ready = {place for place in range(channels) if gate.channel(place).frames}
        moved = world.poll(0)
        waiting = {p: waiting.get(p, 0) + 1 for p in ready if p != gate.last_channel}
        assert all(turns < channels for turns in waiting.values())
        return moved

    def deliver() -> None:
        while world.link.frames or world.link.messages:
            if world.link.frames:
                world.link.deliver_frame()
            if world.link.messages:
                world.link.deliver_message()

    for place, records, polls in steps:
        world.produce(place % channels, records)
        deliver()
        for _ in range(polls):
            poll()
            deliver()
    while poll():
        deliver()
    assert world.read == [list(range(count)) for count in world.written]
