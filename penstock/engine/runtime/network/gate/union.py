"""UnionInputGate: several gates read as one logical input.

Does not know channels. Gates that have something to read stand in a queue, as channels do in a gate; each gives one element and
goes to the tail. Source: Flink UnionInputGate (docs/spec/exchange.md#union-of-gates).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from penstock.engine.model.errors import EngineBug
from penstock.engine.runtime.elements import Batch
from penstock.engine.runtime.network.gate.ports import GateListener
from penstock.engine.runtime.network.gate.ready_queue import ReadyQueue
from penstock.engine.runtime.network.gate.single import (
    Announced,
    EndOfDataStatus,
    GateMaker,
    SingleInputGate,
)
from penstock.engine.runtime.network.subpartition_view import Polled

_LEAST_GATES = 2


class UnionInputGate:
    """Several gates as one. `channels`: their number over all gates. `last_channel`: index, over all gates, of the channel polled last.

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
        self._ready: ReadyQueue[_Member] = ReadyQueue(lock, listener)
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
        self._ready.offer(member)

    def on_gate_announced(self) -> None:
        self._ready.listener.notify_announced()

    def on_gate_priority(self, member: _Member) -> None:
        # Otherwise it has been polled since.
        if member.gate.has_priority:
            self._ready.offer_priority(member)

    # ------------------------------------------------------------------ mailbox thread

    @property
    def is_finished(self) -> bool:
        return all(gate.is_finished for gate in self.gates)

    @property
    def is_available(self) -> bool:
        return len(self._ready) > 0 or self.is_finished

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
        return self._ready.has_priority

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
            member = self._ready.take()
            if member is None:
                return None
            gate = member.gate
            polled = gate.poll()
            if polled is None:
                continue
            if gate.has_more:
                self._ready.put_back(member, has_priority=gate.has_priority)
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
