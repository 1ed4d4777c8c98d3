"""Gates without a network: a host that remembers what it is asked for, views that give what they are told."""

import pickle
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from penstock.engine.model.deployment import ShuffleDescriptor
from penstock.engine.model.errors import PartitionNotFound
from penstock.engine.model.graph.job_graph import ResultPartitionType
from penstock.engine.model.ids import (
    AttemptId,
    DataSetId,
    ExecutionVertexId,
    PartitionId,
    ResourceId,
    ResultPartitionId,
    TaskManagerLocation,
    VertexId,
)
from penstock.engine.runtime.codecs.codec import ChannelEncoder
from penstock.engine.runtime.elements import ColumnBatch, Element, RowBatch
from penstock.engine.runtime.network.gate.channel import InputChannel
from penstock.engine.runtime.network.gate.network_input import NetworkInput, network_inputs
from penstock.engine.runtime.network.gate.ports import GateContext
from penstock.engine.runtime.network.gate.remote_channel import RemoteInputChannel
from penstock.engine.runtime.network.gate.single import GateMaker, SingleInputGate
from penstock.engine.runtime.network.network_memory import NetworkMemory
from penstock.engine.runtime.network.network_settings import NetworkSettings
from penstock.engine.runtime.network.subpartition_view import NextType, Polled

HERE, THERE = ResourceId("tm-here"), ResourceId("tm-there")


class ScriptedView:
    """Gives elements in order; with `gate_open` limited, only so many of them. `error`: raised at the end."""

    def __init__(self, elements=(), listener=None, error: Exception | None = None) -> None:
        self.elements: deque[Element] = deque(elements)
        self.listener = listener
        self.error = error
        self.may_give: int | None = None
        self.on_poll: Callable[[], None] = lambda: None
        self.sequence = 0
        self.is_released = False
        self.resumed = 0
        self.is_read_whole = False
        self.wanted_bytes: int | None = None

    def add(self, *elements: Element) -> None:
        self.elements.extend(elements)
        self.listener.notify_data()

    def give(self, count: int = 1) -> None:
        self.may_give = (self.may_give or 0) + count
        self.listener.notify_data()

    def poll(self) -> Polled | None:
        if self.error is not None and not self.elements:
            raise self.error
        if not self.elements or self.may_give == 0:
            return None
        self.on_poll()
        if self.may_give is not None:
            self.may_give -= 1
        element = self.elements.popleft()
        self.sequence += 1
        return Polled(element, self._backlog(), self._next(), self.sequence - 1)

    def _backlog(self) -> int:
        return sum(isinstance(e, RowBatch | ColumnBatch) for e in self.elements)

    def _next(self) -> NextType:
        if not self.elements or self.may_give == 0:
            return NextType.NONE
        is_data = isinstance(self.elements[0], RowBatch | ColumnBatch)
        return NextType.DATA if is_data else NextType.EVENT

    def is_available(self, *, has_credit: bool) -> bool:
        following = self._next()
        return following is not NextType.NONE and (has_credit or following is not NextType.DATA)

    def resume(self) -> None:
        self.resumed += 1

    def acknowledge_all_records(self) -> None:
        self.is_read_whole = True

    def new_buffer_size(self, buffer_bytes: int) -> None:
        self.wanted_bytes = buffer_bytes

    def limit_rows(self, rows: int | None) -> None:
        self.row_limit = rows

    def release(self) -> None:
        self.is_released = True


class Client:
    """What a remote channel said to its producer."""

    def __init__(self) -> None:
        self.credits: list[int] = []
        self.sizes: list[int] = []
        self.row_limits: list[int | None] = []
        self.events: list[Any] = []
        self.resumed = 0
        self.is_cancelled = False
        self.on_credit: Callable[[int], None] = lambda _: None
        self.on_resume: Callable[[], None] = lambda: None
        self.is_read_whole = False
        self.on_read_whole: Callable[[], None] = lambda: None

    def add_credit(self, credit: int) -> None:
        self.credits.append(credit)
        self.on_credit(credit)

    def new_buffer_size(self, buffer_bytes: int) -> None:
        self.sizes.append(buffer_bytes)

    def limit_rows(self, rows: int | None) -> None:
        self.row_limits.append(rows)

    def resume(self) -> None:
        self.resumed += 1
        self.on_resume()

    def acknowledge_all_records(self) -> None:
        self.is_read_whole = True
        self.on_read_whole()

    def task_event(self, event: Any) -> None:
        self.events.append(event)

    def cancel(self) -> None:
        self.is_cancelled = True


class Host:
    """`views`: what there is in this process. Timers run when `advance` says so."""

    def __init__(self) -> None:
        self.views: dict[ResultPartitionId, Any] = {}
        self.asked_views: list[ResultPartitionId] = []
        self.awaited: dict[ResultPartitionId, list[Callable[[], None]]] = {}
        self.requests: list[tuple[RemoteInputChannel, TaskManagerLocation]] = []
        self.clients: dict[RemoteInputChannel, Client] = {}
        self.questions: list[tuple[ResultPartitionId, Callable[[], None]]] = []
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.events: list[tuple[ResultPartitionId, Any]] = []
        self.now_ms = 0
        self.connects = True

    def create_view(self, partition_id, subpartition, listener):
        self.asked_views.append(partition_id)
        made = self.views.get(partition_id)
        if made is None:
            raise PartitionNotFound(f"no {partition_id} here")
        if isinstance(made, ScriptedView):
            made.listener = listener
            return made
        return made.create_view(subpartition, listener)

    def await_partition(self, partition_id, found) -> None:
        self.awaited.setdefault(partition_id, []).append(found)

    def arrive(self, partition_id, view) -> None:
        """The partition is there now."""
        self.views[partition_id] = view
        for found in self.awaited.pop(partition_id, ()):
            found()

    def request(self, channel, location) -> None:
        self.requests.append((channel, location))
        if self.connects:
            self.clients[channel] = client = Client()
            channel.on_connected(client)

    def ask_producer(self, partition_id, retry) -> None:
        self.questions.append((partition_id, retry))

    def call_later(self, delay_ms, action) -> None:
        self.timers.append((self.now_ms + delay_ms, action))

    def advance(self, to_ms: int) -> None:
        while due := sorted((t for t in self.timers if t[0] <= to_ms), key=lambda t: t[0]):
            self.timers.remove(due[0])
            self.now_ms = due[0][0]
            due[0][1]()
        self.now_ms = to_ms

    def publish_task_event(self, partition_id, event) -> None:
        self.events.append((partition_id, event))


class GateListener:
    """Counts what a gate tells. `then`: is told, too."""

    def __init__(self) -> None:
        self.then = None
        self.available = 0
        self.priority = 0
        self.announced = 0

    def notify_available(self) -> None:
        self.available += 1
        if self.then is not None:
            self.then.notify_available()

    def notify_priority(self) -> None:
        self.priority += 1
        if self.then is not None:
            self.then.notify_priority()

    def notify_announced(self) -> None:
        self.announced += 1
        if self.then is not None:
            self.then.notify_announced()


def as_made(gate: SingleInputGate) -> GateMaker:
    """Makes this gate, which was made with a `GateListener`."""

    def make(listener) -> SingleInputGate:
        gate.listener.then = listener
        return gate

    return make


def context_of(host: Host | None = None, memory_bytes: int = 256 << 20, **settings) -> GateContext:
    network = NetworkSettings(memory_bytes=memory_bytes, **settings)
    memory = NetworkMemory(memory_bytes, threading.Lock, segment_bytes=network.segment_bytes)
    return GateContext(HERE, network, memory, host or Host(), threading.Lock, pickle.loads)


def gate_of(
    channels: int,
    context: GateContext | None = None,
    index: int = 0,
    result_type: ResultPartitionType = ResultPartitionType.PIPELINED_BOUNDED,
) -> SingleInputGate:
    """Set up; nothing is connected."""
    gate = SingleInputGate(index, channels, context or context_of(), GateListener(), result_type)
    gate.setup()
    return gate


def result_id(index: int, name: str = "d") -> ResultPartitionId:
    producer = AttemptId(ExecutionVertexId(VertexId("p"), index), 0)
    return ResultPartitionId(PartitionId(DataSetId(name), index), producer)


def descriptor(index: int, where: ResourceId | None = HERE, name: str = "d") -> ShuffleDescriptor:
    wanted = result_id(index, name)
    if where is None:
        return ShuffleDescriptor(wanted.partition_id, None, None)
    return ShuffleDescriptor(wanted.partition_id, wanted, TaskManagerLocation(where, "host", 7))


def local_gate(*scripts, index: int = 0, host: Host | None = None) -> SingleInputGate:
    """A gate whose channels read these scripts (elements, or views) in this process."""
    host = host or Host()
    name = f"d{index}"
    gate = gate_of(len(scripts), context_of(host), index)
    for place, script in enumerate(scripts):
        view = script if isinstance(script, ScriptedView) else ScriptedView(script)
        host.views[result_id(place, name)] = view
        gate.update_channel(place, descriptor(place, HERE, name), 0)
    gate.request_partitions()
    return gate


def input_of(*gates: SingleInputGate) -> NetworkInput:
    """One logical input of all of them."""
    return inputs_of({0: gates})[0]


def inputs_of(gates: dict[int, Sequence[SingleInputGate]]) -> list[NetworkInput]:
    """One logical input for each index, which nobody is woken to read."""
    makers = {index: [as_made(gate) for gate in mine] for index, mine in gates.items()}
    return network_inputs(makers, threading.Lock, lambda: None)


def remote_gate(
    channels: int, context: GateContext | None = None, index: int = 0
) -> tuple[SingleInputGate, list["Sender"]]:
    """A gate whose channels read from another process, and what puts frames into them."""
    gate = gate_of(channels, context, index)
    for place in range(channels):
        gate.update_channel(place, descriptor(place, THERE), 0)
    gate.request_partitions()
    return gate, [Sender(gate.channel(place)) for place in range(channels)]


class Sender:
    """Numbers and encodes elements for one remote channel."""

    def __init__(self, channel: InputChannel) -> None:
        self.channel = channel
        self.encoder = ChannelEncoder()
        self.sequence = 0

    def send(self, element: Element, backlog: int = 0, **flags) -> None:
        kind, parts = self.encoder.encode(element)
        payload = b"".join(bytes(memoryview(part)) for part in parts)
        sequence, self.sequence = self.sequence, self.sequence + 1
        self.channel.on_frame(int(kind), sequence, payload, backlog, **flags)


def row_batches(*values) -> list[RowBatch]:
    return [RowBatch([value]) for value in values]


def shown(element: Element):
    """A one-row batch as its value, anything else as it is."""
    return element.values[0] if isinstance(element, RowBatch) else element


def drained_gate(gate) -> list:
    """Everything that can be had now."""
    found = []
    while (polled := gate.poll()) is not None:
        found.append(shown(polled.element))
    return found
