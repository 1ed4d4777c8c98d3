"""NetworkInput: one logical input of a task, its gates' elements with watermarks combined. TaskInputs: all of them.

Knows no operator. Source: Flink StreamTaskNetworkInput. Differs: what a channel sends are whole batches, so there
is nothing to deserialize here; the elements that the valve lets out come one by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from penstock.model.errors import EngineBug
from penstock.runtime.elements import (
    ColumnBatch,
    Element,
    EndOfData,
    EndOfPartition,
    LatencyMarker,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from penstock.runtime.gate.single import EndOfDataStatus, SingleInputGate
from penstock.runtime.gate.union import InputGate, UnionInputGate
from penstock.runtime.network_memory import LockFactory
from penstock.runtime.watermark_valve import StatusWatermarkValve


class WakeListener:
    """A gate's listener that wakes whoever reads it."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def notify_available(self) -> None:
        self._wake()

    def notify_priority(self) -> None:
        self._wake()


class NetworkInput:
    """`index`: of the logical input. `records_in`: so far. Mailbox thread."""

    __slots__ = ("_inbox", "_valve", "gate", "index", "records_in")

    def __init__(self, index: int, gate: InputGate) -> None:
        self.index = index
        self.gate = gate
        self.records_in = 0
        self._valve = StatusWatermarkValve(gate.channels)
        self._inbox: deque[Element] = deque()

    @property
    def is_available(self) -> bool:
        """Worth polling. Once it is finished, for ever."""
        return bool(self._inbox) or self.gate.is_available

    @property
    def is_finished(self) -> bool:
        """Nothing will ever come."""
        return self.gate.is_finished and not self._inbox

    def poll(self) -> Element | None:
        """Next element for the operator, or None for now. EndOfData comes once, when the last channel has it.

        Raises: what went wrong on a channel.
        """
        if self._inbox:
            return self._inbox.popleft()
        while (polled := self.gate.poll()) is not None:
            element = polled.element
            if type(element) is RowBatch or type(element) is ColumnBatch:
                self.records_in += len(element)
                return element
            outputs = self._accept(element)
            if outputs:
                self._inbox.extend(outputs[1:])
                return outputs[0]
        return None

    def _accept(self, element: Element) -> Sequence[Element]:
        if isinstance(element, Watermark):
            return self._valve.input_watermark(element.timestamp_ms, self.gate.last_channel)
        if isinstance(element, WatermarkStatus):
            return self._valve.input_status(element, self.gate.last_channel)
        if isinstance(element, LatencyMarker):
            return (element,)
        if isinstance(element, EndOfData):
            status = self.gate.end_of_data
            if status is EndOfDataStatus.NOT_END_OF_DATA:
                return ()
            return (EndOfData(drain=status is EndOfDataStatus.DRAINED),)
        if isinstance(element, EndOfPartition):
            return ()
        raise EngineBug(f"unexpected element {element!r} on channel {self.gate.last_channel}")


class TaskInputs:
    """All logical inputs of a task, in turns: one element each. `inputs`: in order of their indexes."""

    is_source = False

    def __init__(self, inputs: Sequence[NetworkInput]) -> None:
        self.inputs = inputs
        self._next = 0

    @property
    def is_finished(self) -> bool:
        return all(one.is_finished for one in self.inputs)

    @property
    def is_available(self) -> bool:
        return any(one.is_available for one in self.inputs if not one.is_finished)

    @property
    def records_in(self) -> int:
        return sum(one.records_in for one in self.inputs)

    def poll(self) -> tuple[int, Sequence[Element]] | None:
        """An element with the index of its input, or None for now."""
        inputs = self.inputs
        count = len(inputs)
        for step in range(count):
            at = (self._next + step) % count
            element = inputs[at].poll()
            if element is not None:
                self._next = (at + 1) % count
                return inputs[at].index, (element,)
        return None


def network_inputs(
    gates: Mapping[int, Sequence[SingleInputGate]], new_lock: LockFactory, wake: Callable[[], None]
) -> list[NetworkInput]:
    """One input for each index, of its only gate or of the union of its gates."""
    inputs = []
    for index in sorted(gates):
        mine = gates[index]
        gate: InputGate = mine[0]
        if len(mine) > 1:
            gate = UnionInputGate(mine, new_lock(), WakeListener(wake))
        inputs.append(NetworkInput(index, gate))
    return inputs
