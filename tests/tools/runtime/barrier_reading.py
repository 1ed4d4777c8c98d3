"""Who reads inputs with their barriers, at a time that the test sets."""

import pickle

from penstock.engine.model.checkpoints import CheckpointOptions
from penstock.engine.runtime.checkpoint.barrier_handler import Alignment, SingleBarrierHandler
from penstock.engine.runtime.checkpoint.input_checkpoints import InputHooks, replayed
from penstock.engine.runtime.elements import CheckpointBarrier, RowBatch
from penstock.engine.runtime.network.gate.network_input import take_barriers
from tests.tools.runtime.gates import (
    input_of,
    remote_gate,
)
from tests.tools.runtime.task_parts import values_of

LIMIT_MS = 100


def barrier(checkpoint_id=1, limit_ms=LIMIT_MS, timestamp_ms=0):
    options = CheckpointOptions(aligned_timeout_ms=limit_ms)
    return CheckpointBarrier(checkpoint_id, timestamp_ms, options)


def row_batch(*values):
    return RowBatch(list(values))


class BarrierReader:
    """Reads inputs with their barriers, at a time that the test sets. `out`: rows one by one, and barriers as (id, unaligned)."""

    def __init__(self, *inputs) -> None:
        self.inputs = inputs
        self.now_ms = 0
        self.out: list = []
        self.in_flight: dict = {}
        self.timers: list = []
        self.taken = take_barriers(
            inputs,
            lambda channels: SingleBarrierHandler(channels, Alignment.ALTERNATING),
            lambda: self.now_ms,
            hooks=InputHooks(on_in_flight=self.on_in_flight, on_timer_set=self.timers.append),
        )

    def on_in_flight(self, checkpoint_id, channels) -> None:
        self.in_flight[checkpoint_id] = {
            channel: values_of(replayed(data, pickle.loads)) for channel, data in channels.items()
        }

    def announced(self) -> list:
        for one in self.inputs:
            one.read_announcements()
        return self.timers

    def urgent(self) -> list:
        """What comes ahead of its turn. Returns: that."""
        before = len(self.out)
        for one in self.inputs:
            while elements := one.poll_priority():
                self._note(elements)
        return self.out[before:]

    def turn(self, place=0) -> list:
        before = len(self.out)
        self._note(self.inputs[place].poll())
        return self.out[before:]

    def rest(self) -> list:
        before = len(self.out)
        for place in range(len(self.inputs)):
            while self.turn(place):
                pass
        return self.out[before:]

    def _note(self, elements) -> None:
        for element in elements:
            if isinstance(element, CheckpointBarrier):
                self.out.append((element.checkpoint_id, element.is_unaligned))
            elif isinstance(element, RowBatch):
                self.out += element.values
            else:
                self.out.append(element)


def one_input(channels=2):
    gate, senders = remote_gate(channels)
    return BarrierReader(input_of(gate)), senders
