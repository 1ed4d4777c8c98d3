"""NetworkInput: one logical input of a task. It gives the elements of its gates, with their watermarks combined.

Does not know operators. Source: Flink StreamTaskNetworkInput. Differs: channels give whole batches, so there
is nothing to deserialize here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import accumulate, chain
from typing import Any, TypeAlias

from penstock.engine.model.errors import EngineBug
from penstock.engine.runtime.checkpoint.input_checkpoints import (
    NO_INPUT_HOOKS,
    BarrierHandler,
    InputCheckpoints,
    InputHooks,
)
from penstock.engine.runtime.elements import (
    Batch,
    CancelCheckpointMarker,
    CheckpointBarrier,
    ColumnBatch,
    Element,
    EndOfData,
    EndOfPartition,
    LatencyMarker,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.runtime.network.gate.ports import GateListener
from penstock.engine.runtime.network.gate.single import (
    Announced,
    EndOfDataStatus,
    GateMaker,
    ReadyQueue,
    SingleInputGate,
)
from penstock.engine.runtime.network.network_memory import LockFactory
from penstock.engine.runtime.network.subpartition_view import Polled
from penstock.engine.runtime.records.frozen import Dumps, plain_dumps
from penstock.engine.runtime.watermarks.valve import StatusWatermarkValve

_Later: TypeAlias = "partial[Sequence[Element]]"
"""An element whose handling has to wait until everything before it has been read."""


class WakeListener:
    """A gate's listener that wakes the thread which reads the gate."""

    def __init__(
        self,
        wake: Callable[[], None],
        wake_priority: Callable[[], None] | None = None,
        announced: Callable[[], None] | None = None,
    ) -> None:
        """`wake_priority`: called for elements that overtake; None: `wake` is called. `announced`: called for barriers whose alignment can
        time out; None: nobody has to know.
        """
        self._wake = wake
        self._wake_priority = wake_priority or wake
        self._announced = announced

    def notify_available(self) -> None:
        self._wake()

    def notify_priority(self) -> None:
        self._wake_priority()

    def notify_announced(self) -> None:
        if self._announced is not None:
            self._announced()


class NetworkInput:
    """One logical input. `index`: its index. `records_in`: records read so far. Mailbox thread."""

    __slots__ = (
        "_checkpoints",
        "_first_channel",
        "_recovered",
        "_valve",
        "_waiting",
        "gate",
        "index",
        "records_in",
    )

    def __init__(self, index: int, gate: InputGate) -> None:
        self.index = index
        self.gate = gate
        self.records_in = 0
        self._first_channel = 0
        self._checkpoints: InputCheckpoints | None = None
        self._recovered: deque[tuple[int, Element | _Later]] = deque()
        self._waiting: list[Element] = []
        self._valve = StatusWatermarkValve(gate.channels)

    @property
    def gates(self) -> Sequence[SingleInputGate]:
        """Its only gate, or those of its union."""
        gate = self.gate
        return gate.gates if isinstance(gate, UnionInputGate) else (gate,)

    def hand_barriers_to(self, checkpoints: InputCheckpoints, first_channel: int) -> None:
        """Set the object that handles barriers. `first_channel`: the number of this input's first channel among all
        channels of the task.
        """
        self._checkpoints = checkpoints
        self._first_channel = first_channel

    @property
    def is_available(self) -> bool:
        """Whether it is worth polling. Stays true once the input is finished."""
        return bool(self._waiting or self._recovered) or self.gate.is_available

    @property
    def has_read_all(self) -> bool:
        """Whether the end of data of every channel, and everything before it, has been read."""
        is_end = self.gate.end_of_data is not EndOfDataStatus.NOT_END_OF_DATA
        return is_end and not (self._waiting or self._recovered)

    @property
    def is_finished(self) -> bool:
        """Whether nothing will ever come."""
        return self.gate.is_finished and not (self._waiting or self._recovered)

    def poll(self) -> Sequence[Element]:
        """The next elements for the operator, in order; empty if there are none for now. EndOfData comes once, after the last channel
        has sent its own. Raises: the error of a channel.
        """
        if self._waiting:
            return self._take_waiting()
        while self._recovered:
            if outputs := self._replay():
                return outputs
        while (polled := self.gate.poll()) is not None:
            if outputs := self._accept(polled):
                return outputs
        return ()

    def poll_priority(self) -> Sequence[Element]:
        """Elements that overtake, to be handled while the task is in the middle of a batch. If something else was found in their place,
        it is kept and read in its turn.

        Barriers also overtake recovered data that has not been read. An alignment that has timed out ends here too.
        """
        self.read_announcements()
        if self._waiting:
            return self._take_waiting()
        if self._checkpoints is not None and (late := self._checkpoints.on_timer()):
            return late
        while self.gate.has_priority:
            polled = self.gate.poll()
            if polled is None:
                break
            if self._recovered and not self._overtakes(polled.element):
                self._defer(polled)
            elif outputs := self._accept(polled):
                return outputs
        return ()

    def _overtakes(self, element: Element) -> bool:
        if isinstance(element, CheckpointBarrier):
            is_late = self._checkpoints is not None and self._checkpoints.is_overtaking
            return element.is_unaligned or is_late
        return isinstance(element, CancelCheckpointMarker)

    def _defer(self, polled: Polled) -> None:
        """Keep an element until the recovered data before it has been read. Until then it is in flight like that data: a later recording
        finds it there, and a recording that has begun records it now.
        """
        element, place = polled.element, self.gate.last_channel
        if isinstance(element, (CheckpointBarrier, EndOfPartition)):
            later = partial(self._accept_for_checkpoints, element, polled.sequence, place)
            self._recovered.append((place, later))
        else:
            self._recovered.extend((place, one) for one in self._accept(polled))

    def read_announcements(self) -> None:
        """Take announced barriers out of the queues, so that their alignment timeout starts to run. The next poll
        gives the resulting elements.
        """
        for place, barrier, sequence in self.gate.take_announced():
            if self._checkpoints is not None:
                channel = self._first_channel + place
                self._waiting += self._checkpoints.on_announcement(barrier, channel, sequence)

    def _take_waiting(self) -> Sequence[Element]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def recover(self, gate_index: int, producer: int, batches: Iterable[Batch]) -> None:
        """Add data that was in flight at the restored checkpoint. Call before the first poll: it is read before new data.

        `producer`: the index of its sender among the producers of that time.
        """
        gate, offset = self.gate, 0
        if isinstance(gate, UnionInputGate):
            offset = gate.offset(gate_index)
            gate = gate.gate_of(offset)
        channel = offset + producer % gate.channels
        for batch in batches:
            self.records_in += len(batch)
            self._recovered.append((channel, batch))

    @property
    def recovered(self) -> Iterator[tuple[int, Batch]]:
        """The recovered batches that have not been read, in order, each with the number of its channel in the task."""
        for channel, one in self._recovered:
            if isinstance(one, (RowBatch, ColumnBatch)):
                yield self._first_channel + channel, one

    def _replay(self) -> Sequence[Element]:
        _, one = self._recovered.popleft()
        return one() if isinstance(one, partial) else (one,)

    def _accept(self, polled: Polled) -> Sequence[Element]:
        element = polled.element
        if type(element) is RowBatch or isinstance(element, ColumnBatch):
            return self._accept_data(element)
        if isinstance(element, Watermark):
            return self._valve.input_watermark(element.timestamp_ms, self.gate.last_channel)
        if isinstance(element, WatermarkStatus):
            return self._valve.input_status(element, self.gate.last_channel)
        if isinstance(element, LatencyMarker):
            return (element,)
        if isinstance(element, EndOfData):
            status = self.gate.end_of_data
            is_end = status is not EndOfDataStatus.NOT_END_OF_DATA
            return (EndOfData(drain=status is EndOfDataStatus.DRAINED),) if is_end else ()
        return self._accept_for_checkpoints(element, polled.sequence, self.gate.last_channel)

    def _accept_data(self, batch: Batch) -> Sequence[Element]:
        self.records_in += len(batch)
        if self._checkpoints is not None and self._checkpoints.in_flight is not None:
            channel = self._first_channel + self.gate.last_channel
            self._checkpoints.in_flight.on_data(channel, batch)
        return (batch,)

    def _accept_for_checkpoints(
        self, element: Element, sequence: int, place: int
    ) -> Sequence[Element]:
        channel = self._first_channel + place
        checkpoints = self._checkpoints
        if isinstance(element, EndOfPartition):
            return () if checkpoints is None else checkpoints.on_end_of_partition(channel)
        if checkpoints is not None and isinstance(element, CheckpointBarrier):
            return checkpoints.on_barrier(
                element, channel, lambda: self.gate.overtaken(place, sequence)
            )
        if checkpoints is not None and isinstance(element, CancelCheckpointMarker):
            return checkpoints.on_cancel(element, channel)
        raise EngineBug(f"unexpected element {element!r} on channel {place}")


def network_inputs(
    makers: Mapping[int, Sequence[GateMaker]],
    new_lock: LockFactory,
    wake: Callable[[], None],
    wake_priority: Callable[[], None] | None = None,
    announced: Callable[[], None] | None = None,
) -> list[NetworkInput]:
    """One input for each index: of its only gate, or of the union of its gates. `makers`: make the gates. The callbacks are those of
    `WakeListener`.
    """
    listener = WakeListener(wake, wake_priority, announced)
    inputs = []
    for index, mine in sorted(makers.items()):
        is_union = len(mine) > 1
        gate = UnionInputGate(mine, new_lock(), listener) if is_union else mine[0](listener)
        inputs.append(NetworkInput(index, gate))
    return inputs


class InputsAsOne:
    """`InputChannels` for several inputs, whose channels are numbered consecutively."""

    def __init__(self, inputs: Sequence[NetworkInput]) -> None:
        self._inputs = inputs
        self.firsts = [0, *accumulate(one.gate.channels for one in inputs)]

    @property
    def count(self) -> int:
        return self.firsts[-1]

    def resume(self, channel: int) -> None:
        owner, place = self.owner_of(channel)
        owner.gate.resume(place)

    def prioritize(self, channel: int, sequence: int) -> None:
        owner, place = self.owner_of(channel)
        owner.gate.prioritize(place, sequence)

    def recovered(self) -> Iterable[tuple[int, Batch]]:
        return chain.from_iterable(one.recovered for one in self._inputs)

    @property
    def bytes_in(self) -> int:
        return sum(one.gate.bytes_in for one in self._inputs)

    def owner_of(self, channel: int) -> tuple[NetworkInput, int]:
        """The input of a channel, and the channel's index in that input."""
        index = bisect_right(self.firsts, channel) - 1
        return self._inputs[index], channel - self.firsts[index]


def take_barriers(
    inputs: Sequence[NetworkInput],
    handler_of: Callable[[int], BarrierHandler],
    now_ms: Callable[[], int],
    dumps: Dumps = plain_dumps,
    hooks: InputHooks = NO_INPUT_HOOKS,
) -> InputCheckpoints:
    """Send the barriers of all these inputs to one handler from now on. `handler_of(channels)` makes the handler; `dumps` pickles the
    data in flight.
    """
    channels = InputsAsOne(inputs)
    checkpoints = InputCheckpoints(handler_of(channels.count), now_ms, channels, hooks, dumps)
    for one, first in zip(inputs, channels.firsts, strict=False):
        one.hand_barriers_to(checkpoints, first)
    return checkpoints


def place_of(inputs: Sequence[NetworkInput], channel: int) -> tuple[int, int]:
    """The index of the gate, and the channel's index in it, for a channel of the task."""
    owner, place = InputsAsOne(inputs).owner_of(channel)
    gate = owner.gate
    if isinstance(gate, UnionInputGate):
        member = gate.gate_of(place)
        return member.index, place - gate.offset(member.index)
    return gate.index, place


_LEAST_GATES = 2


class UnionInputGate:
    """Several gates read as one logical input.

    Does not know channels. Gates that have something to read stand in a queue, as channels do in a gate; each gives one
    element and goes to the tail. Source: Flink UnionInputGate (docs/spec/exchange.md#union-of-gates).

    Several gates as one. `channels`: their number over all gates. `last_channel`: index, over all gates, of the channel
    polled last.

    The gates themselves are closed and connected separately.
    """

    def __init__(
        self,
        makers: Sequence[GateMaker],
        lock: AbstractContextManager[Any],
        listener: GateListener,
    ) -> None:
        """`makers`: make the gates, whose listener is the union. Raises: EngineBug: fewer than two gates, or two with the same index."""
        self.last_channel = -1
        self.ready: ReadyQueue[_Member] = ReadyQueue(lock, listener)
        self._members: list[_Member] = []
        self.channels = 0
        for make in makers:
            member = _Member(self, make, self.channels)
            self._members.append(member)
            self.channels += member.gate.channels
        self.gates = [member.gate for member in self._members]
        indexes = [gate.index for gate in self.gates]
        if len(indexes) < _LEAST_GATES or len(set(indexes)) < len(indexes):
            raise EngineBug(
                f"a union takes two or more gates with different indexes, got gates {indexes}"
            )
        for member in self._members:
            if member.gate.is_available:
                self.on_gate_available(member)

    @property
    def bytes_in(self) -> int:
        return sum(gate.bytes_in for gate in self.gates)

    def offset(self, gate_index: int) -> int:
        """The index in the union of that gate's first channel. Raises: EngineBug: the gate is not in the union."""
        return self._member(gate_index).offset

    def gate_of(self, channel: int) -> SingleInputGate:
        """The gate of a channel, given the channel's index in the union."""
        return self._member_of(channel).gate

    def _member(self, gate_index: int) -> _Member:
        for member in self._members:
            if member.gate.index == gate_index:
                return member
        raise EngineBug(f"gate {gate_index} is not in this union")

    def _member_of(self, channel: int) -> _Member:
        return max((m for m in self._members if m.offset <= channel), key=_offset)

    # ------------------------------------------------------------------ any thread

    def on_gate_available(self, member: _Member) -> None:
        self.ready.offer(member)

    def on_gate_announced(self) -> None:
        self.ready.listener.notify_announced()

    def on_gate_priority(self, member: _Member) -> None:
        # Otherwise it has been polled since.
        if member.gate.has_priority:
            self.ready.offer_priority(member)

    # ------------------------------------------------------------------ mailbox thread

    @property
    def is_finished(self) -> bool:
        return all(gate.is_finished for gate in self.gates)

    @property
    def is_available(self) -> bool:
        return len(self.ready) > 0 or self.is_finished

    @property
    def end_of_data(self) -> EndOfDataStatus:
        found = {gate.end_of_data for gate in self.gates}
        if EndOfDataStatus.NOT_END_OF_DATA in found:
            return EndOfDataStatus.NOT_END_OF_DATA
        is_stopped = EndOfDataStatus.STOPPED in found
        return EndOfDataStatus.STOPPED if is_stopped else EndOfDataStatus.DRAINED

    def resume(self, place: int) -> None:
        """Go on with a channel, given its index in the union. As `SingleInputGate.resume`."""
        member = self._member_of(place)
        member.gate.resume(place - member.offset)

    @property
    def has_priority(self) -> bool:
        return self.ready.has_priority

    def overtaken(self, place: int, sequence: int) -> Sequence[Batch]:
        """As `SingleInputGate.overtaken`, with the channel's index in the union."""
        member = self._member_of(place)
        return member.gate.overtaken(place - member.offset, sequence)

    def prioritize(self, place: int, sequence: int) -> None:
        """As `SingleInputGate.prioritize`, with the channel's index in the union."""
        member = self._member_of(place)
        member.gate.prioritize(place - member.offset, sequence)

    def take_announced(self) -> Iterator[Announced]:
        """As `SingleInputGate.take_announced`."""
        for member in self._members:
            for place, barrier, sequence in member.gate.take_announced():
                yield member.offset + place, barrier, sequence

    def poll(self) -> Polled | None:
        """One element of the gate that has waited longest, or None for now. Raises: as `SingleInputGate.poll`."""
        while True:
            member = self.ready.take()
            if member is None:
                return None
            gate = member.gate
            polled = gate.poll()
            if polled is None:
                continue
            if gate.has_more:
                self.ready.put_back(member, has_priority=gate.has_priority)
            self.last_channel = member.offset + gate.last_channel
            return polled


class _Member:
    """A gate in its union."""

    __slots__ = ("_union", "gate", "is_finished", "is_queued", "offset")

    def __init__(self, union: UnionInputGate, make: GateMaker, offset: int) -> None:
        self._union = union
        self.offset = offset
        self.gate = make(self)
        self.is_queued = False
        self.is_finished = (
            # A gate that ends is queued once more, so that the reader finds out.
            False
        )

    def notify_available(self) -> None:
        self._union.on_gate_available(self)

    def notify_priority(self) -> None:
        self._union.on_gate_priority(self)

    def notify_announced(self) -> None:
        self._union.on_gate_announced()


def _offset(member: _Member) -> int:
    return member.offset


InputGate: TypeAlias = SingleInputGate | UnionInputGate
