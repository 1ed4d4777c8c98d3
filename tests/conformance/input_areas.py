"""Adapters of the input side's areas: gates, channels, credit, back-off, buffers."""

import re
import threading
from collections.abc import Callable
from typing import Any

from penstock.engine.hosting.network.frames import FrameType
from penstock.engine.hosting.network.producer_side import RemoteView
from penstock.engine.model.errors import BufferReordering, ExternalError
from penstock.engine.model.graph.job_graph import ResultPartitionType
from penstock.engine.model.states import ExecutionState
from penstock.engine.runtime.codecs.events import FrameKind
from penstock.engine.runtime.elements import EndOfData, EndOfPartition, RowBatch, Watermark
from penstock.engine.runtime.network.gate.channel import InputChannel
from penstock.engine.runtime.network.gate.debloater import BufferDebloater, DebloatTarget
from penstock.engine.runtime.network.gate.missing_partition import (
    Backoff,
    ListenerBackoff,
    NoState,
    reaction,
)
from penstock.engine.runtime.network.gate.network_input import UnionInputGate
from penstock.engine.runtime.network.gate.remote_channel import ReceiverCredit
from penstock.engine.runtime.network.gate.single import EndOfDataStatus, SingleInputGate
from penstock.engine.runtime.network.network_memory import (
    LocalBufferPool,
    NetworkMemory,
    PoolLimits,
    gate_buffers,
    output_buffers,
)
from penstock.engine.runtime.network.network_settings import NetworkSettings
from penstock.engine.runtime.network.partition.result_partition import (
    PartitionHooks,
    pipelined_partition,
)
from tests.conformance.compare import NotCovered, differences
from tests.tools.runtime.gates import (
    HERE,
    THERE,
    GateListener,
    Host,
    ScriptedView,
    as_made,
    context_of,
    descriptor,
    gate_of,
    remote_gate,
    result_id,
    shown,
)

Given = dict[str, Any]


# ------------------------------------------------------------------------------- gates


_RECEIVES = re.compile(r"channel (\d+) receives (priority event )?(?:buffer |event )?(\w+)")


def gate_order(given: Given) -> Given:
    if "end_of_data" in given:
        return {"status": _statuses(given)}
    if "events" in given:
        return _ends(given)
    scripts = {int(place): list(names) for place, names in given["channels"].items()}
    gate, senders = remote_gate(max(scripts) + 1)
    for place in given["enqueued_order"]:
        for name in scripts.pop(place, ()):
            senders[place].send(RowBatch([name]))
        gate.channel(place).notify_data()
    for place, priority, name in _RECEIVES.findall(given.get("then", "")):
        senders[int(place)].send(RowBatch([name]), has_priority=bool(priority))
    polled = []
    while len(polled) < given.get("polls", 1 << 30) and (one := gate.poll()) is not None:
        polled.append(shown(one.element))
    return {"poll_order": polled}


def _connected(channels: int) -> tuple[SingleInputGate, list[ScriptedView]]:
    host = Host()
    gate = gate_of(channels, context_of(host))
    views = [ScriptedView() for _ in range(channels)]
    for place, view in enumerate(views):
        host.views[result_id(place)] = view
        gate.update_channel(place, descriptor(place), 0)
    gate.request_partitions()
    return gate, views


def _statuses(given: Given) -> list[str]:
    words = given["end_of_data"]
    gate, views = _connected(given.get("channels", len(words)))
    found = []
    for view, word in zip(views, words, strict=False):
        view.add(EndOfData(drain=word == "DRAIN"))
        gate.poll()
        is_open = gate.end_of_data is EndOfDataStatus.NOT_END_OF_DATA
        found.append("not_end" if is_open else gate.end_of_data.value)
    return found


def _ends(given: Given) -> Given:
    gate, views = _connected(given["channels"])
    finished_after = None
    for number, event in enumerate(given["events"], 1):
        view = views[int(event.split()[-1])]
        view.add(EndOfPartition())
        gate.poll()
        if gate.is_finished and finished_after is None:
            finished_after = number
    return {"finished_after": finished_after, "available_future_done": gate.is_available}


def union_gate(given: Given, expect: Given) -> str | None:
    context = context_of()
    gates = [gate_of(one["channels"], context, one["gate_index"]) for one in given["gates"]]
    union = UnionInputGate(list(map(as_made, gates)), threading.Lock(), GateListener())
    if expect.get("error"):
        return f"expected a refusal, got a union of {union.channels} channels"
    flattened = {}
    for name in expect.get("flattened", ()):
        gate_index, channel = map(int, name.split(":"))
        flattened[name] = union.offset(gate_index) + channel
    return differences(expect, {"total_channels": union.channels, "flattened": flattened})


def unknown_channel(given: Given) -> Given:
    host = Host()
    context = context_of(host)
    gate = gate_of(1, context)
    if given.get("already_requested"):
        gate.request_partitions()
    if given.get("op") == "read":
        gate.channel(0).poll()
        return {"error": False}
    host.views[result_id(0)] = ScriptedView()
    before = context.memory.buffers_in_use
    where = {"same process": HERE, "other process": THERE}.get(given["partition_update"])
    gate.update_channel(0, descriptor(0, where), 0)
    assigned = context.memory.buffers_in_use - before
    return {
        "becomes": type(gate.channel(0)).__name__.removesuffix("InputChannel").lower(),
        "requested_immediately": bool(host.asked_views or host.requests),
        "exclusive_buffers_assigned": assigned == context.settings.buffers_per_channel,
    }


_NO_STATES = {"question timed out": NoState.TIMED_OUT, "producer disposed": NoState.DISPOSED}


def producer_state_check(given: Given) -> Given:
    consumer = given.get("consumer_state", "RUNNING")
    if "rows" in given:
        return {"action": [_action(consumer, row) for row in given["rows"]]}
    return {"action": _action(consumer, given["producer"])}


def _action(consumer: str, row: Any) -> str:
    if isinstance(row, dict):
        consumer, row = row.get("consumer_state", consumer), row["producer"]
    known = ExecutionState.__members__
    answer = known[row] if row in known else _NO_STATES.get(row, NoState.ERROR)
    return reaction(ExecutionState[consumer], answer).value.lower()


# ------------------------------------------------------------------------------- credit


def credit(given: Given) -> Given:
    if "queue" in given:
        return _sender(given)
    if "gain" in given:
        return _announcements(given)
    if "event" in given:
        return _recycled(given)
    return _backlog(given)


def _pool(buffers: int) -> LocalBufferPool:
    memory = NetworkMemory(
        max(1, buffers) << 10, threading.Lock, segment_bytes=1 << 10, max_buffer_bytes=1 << 10
    )
    return memory.create_pool(PoolLimits(buffers, buffers))


def _backlog(given: Given) -> Given:
    pool = _pool(given["floating_pool"])
    receiver = ReceiverCredit(given["exclusive"], pool, lambda: False)
    if "unannounced_before" in given:
        receiver.gain(given["unannounced_before"])
    before = receiver.unannounced
    receiver.on_backlog(given["backlog_announced"])
    return {
        "required": receiver.required,
        "floating_requested": pool.in_use,
        "credit_delta": receiver.unannounced - before,
        "waiting_listener": receiver.is_waiting,
        "available_after": receiver.available,
    }


def _recycled(given: Given) -> Given:
    """One exclusive buffer is with a frame, so it is one fewer that is available."""
    exclusive, floating = given["available_exclusive"], given["available_floating"]
    receiver = ReceiverCredit(exclusive, _pool(max(1, floating)), lambda: False)
    receiver.on_backlog(floating)
    receiver.announce()
    receiver.required = given["required"]
    gives_back, _ = receiver.recycle_exclusive()
    return {
        "floating_released": int(gives_back),
        "credit_delta": receiver.unannounced,
        "available_after": receiver.available,
    }


def _announcements(given: Given) -> Given:
    receiver = ReceiverCredit(2, _pool(1), lambda: False)
    receiver.gain(given["unannounced_before"])
    gains = [given[key] for key in ("gain", "then_gain") if key in given]
    messages = sum(receiver.gain(gain) for gain in gains)
    return {
        "credit_messages": messages,
        "message_value_if_sent_after_both": receiver.announce(),
    }


class _Connection:
    """What a sender put on the wire."""

    is_closed = is_congested = False

    def __init__(self) -> None:
        self.sent: list[str] = []

    def send(self, frame_type: FrameType, _channel: int, _parts: Any, header: Any) -> None:
        if frame_type is FrameType.DATA:
            self.sent.append("data" if FrameKind(header[0]).is_data else "event")

    def take(self) -> list[str]:
        sent, self.sent = self.sent, []
        return sent


def _sender(given: Given) -> Given:
    connection = _Connection()
    part = pipelined_partition(result_id(0), 1, 1 << 20, PartitionHooks(), threading.Lock)
    sub = part.subpartitions[0]
    for number, word in enumerate(given["queue"]):
        if word == "data":
            sub.add_frame(RowBatch([number]), is_finished=True)
        else:
            sub.add(Watermark(number))
    view = RemoteView(connection, 1, given["sender_credit"], _fail, lambda _size: None)
    view.start(part.create_view(0, view))
    answers: Given = {"sent_now": connection.take()}
    view.pump()
    again = connection.take()
    left = given["queue"][len(answers["sent_now"]) :]
    answers["then_after_no_credit"] = again or (
        f"nothing (head is {left[0]})" if left else "nothing"
    )
    view.add_credit(1)
    answers["after_credit_1"] = connection.take()
    return answers


def _fail(error: Exception) -> None:
    raise error


def sequence_check(given: Given) -> Given:
    gate, _ = remote_gate(1)
    channel = gate.channel(0)
    channel.expected = given["expected"] & 0xFFFFFFFF
    for number, sequence in enumerate(given["received"], 1):
        channel.on_frame(FrameKind.WATERMARK, sequence & 0xFFFFFFFF, bytes(8))
        kind = _error_of(channel)
        if kind is not None:
            return {"error_on": number, "kind": kind}
    return {"error_on": None, "kind": None}


def _error_of(channel: InputChannel) -> str | None:
    try:
        while channel.poll() is not None:
            pass
    except BufferReordering:
        return "reordering"
    except ExternalError as error:
        return type(error).__name__
    return None


# ------------------------------------------------------------------------------- plain rules


def backoff(given: Given) -> Given:
    rule: Backoff
    if "timeout" in given:
        rule = ListenerBackoff(given["timeout"], given["max"])
    else:
        rule = Backoff(given["initial"], given["max"])
    calls = []
    for _ in range(given["calls"]):
        has_increased = rule.increase()
        calls.append({"increased": has_increased, "current": rule.current_ms})
    return {"calls": calls}


def debloat(given: Given) -> Given:
    target = DebloatTarget(
        target_ms=given["target_ms"],
        max_bytes=given["max_size"],
        min_bytes=given["min_size"],
        threshold_percent=given["threshold_percent"],
        samples=given["samples"],
    )
    debloater = BufferDebloater(target)
    announced, estimated = [], []
    for bytes_per_s, buffers_in_use in given["measurements"]:
        announced.append(debloater.recalculate(bytes_per_s, buffers_in_use))
        estimated.append(debloater.estimated_ms)
    return {"announced": announced, "estimated_ms": estimated}


def buffer_counts(given: Given) -> Given:
    word, *rest = given["type"].split()
    kind = ResultPartitionType[word]
    sizes = {key: given[key] for key in ("per_channel", "floating") if key in given}
    if given.get("gate"):
        settings = NetworkSettings(max_required_per_gate=given.get("max_required"))
        cap = settings.required_cap(kind)
        buffers = gate_buffers(given["channels"], max_required=cap, **sizes)
        return {
            "exclusive_per_channel": buffers.exclusive,
            "required_floating": buffers.required_floating,
            "total_floating": buffers.total_floating,
        }
    if rest:
        raise NotCovered(given["type"])
    least, most = output_buffers(
        given["subpartitions"], is_bounded=kind.has_bounded_buffers, **sizes
    )
    return {"min": least, "max": "unbounded" if most is None else most}


AREAS: dict[str, Callable[..., Any]] = {
    "gate_order": gate_order,
    "union_gate": union_gate,
    "unknown_channel": unknown_channel,
    "producer_state_check": producer_state_check,
    "credit": credit,
    "sequence_check": sequence_check,
    "buffer_counts": buffer_counts,
    "debloat": debloat,
    "backoff": backoff,
}
