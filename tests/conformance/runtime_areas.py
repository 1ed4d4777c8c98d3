"""Adapters of the data plane's areas: each builds the real object, feeds it, and says what it answered."""

import re
from collections.abc import Callable
from typing import Any

from penstock.common import Duration
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.engine.model.types import Types
from penstock.engine.runtime.elements import ACTIVE, IDLE, RowBatch, Watermark
from penstock.engine.runtime.keys import (
    KeySelection,
    check_parallelism,
    default_max_parallelism,
    key_group_range,
    murmur,
    operator_index,
    restore_sources,
)
from penstock.engine.runtime.keys.hashing import key_group
from penstock.engine.runtime.network.partitioner import make_partitioner
from penstock.engine.runtime.operators.timer_service import InternalTimerService
from penstock.engine.runtime.state.contract import StateTtlConfig, ValueStateDescriptor
from penstock.engine.runtime.state.heap import HeapKeyedStateBackend
from penstock.engine.runtime.watermarks.by_split import WatermarkMultiplexer
from penstock.engine.runtime.watermarks.strategy import (
    BoundedOutOfOrderness,
    WatermarksWithIdleness,
)
from penstock.engine.runtime.watermarks.valve import CombinedWatermark, StatusWatermarkValve
from penstock.engine.runtime.windowing import (
    EventTimeSessionWindows,
    MergingWindowSet,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
)
from tests.conformance.compare import differences
from tests.conformance.window_area import window_operator
from tests.tools.runtime.operator_harness import FakeTimers

Given = dict[str, Any]
_STATUS = {"IDLE": IDLE, "ACTIVE": ACTIVE}


def _shown(outputs: Any) -> list[dict[str, Any]]:
    return [
        {"watermark": one.timestamp_ms}
        if isinstance(one, Watermark)
        else {"status": "IDLE" if one.idle else "ACTIVE"}
        for one in outputs
    ]


def watermark_valve(given: Given) -> Given:
    valve = StatusWatermarkValve(given["channels"])
    outputs = []
    for one in given["inputs"]:
        if "watermark" in one:
            outputs.append(_shown(valve.input_watermark(one["watermark"], one["channel"])))
        else:
            outputs.append(_shown(valve.input_status(_STATUS[one["status"]], one["channel"])))
    return {"outputs_per_input": outputs}


def combined_watermark(given: Given) -> Given:
    combined = CombinedWatermark(given["inputs"])
    outputs = []
    for one in given["events"]:
        if "watermark" in one:
            outputs.append(_shown(combined.input_watermark(one["watermark"], one["input"])))
        else:
            outputs.append(_shown(combined.input_status(_STATUS[one["status"]], one["input"])))
    return {"outputs_per_input": outputs}


def split_watermarks(given: Given) -> Given:
    multiplexer = WatermarkMultiplexer()
    return {"outputs_per_op": [_shown(_split_op(multiplexer, op)) for op in given["ops"]]}


def _split_op(multiplexer: WatermarkMultiplexer, op: Given) -> Any:
    word = op["op"]
    if word == "register":
        multiplexer.register(op["split"])
        return ()
    if word == "unregister":
        multiplexer.unregister(op["split"])
        return ()
    if word == "periodic":
        return multiplexer.periodic()
    is_immediate = word == "immediate"
    if "status" in op:
        status = _STATUS[op["status"]]
        return multiplexer.set_status(op["split"], status, is_immediate=is_immediate)
    if is_immediate:
        return multiplexer.immediate(op["split"], op["watermark"])
    multiplexer.deferred(op["split"], op["watermark"])
    return ()


def watermark_generator(given: Given) -> Given:
    if given["kind"] == "idleness":
        return {"periodic_outputs": _idle_outputs(given)}
    generator = BoundedOutOfOrderness(given["delay_ms"])
    outputs = []
    for step in given["steps"]:
        if step == "periodic":
            outputs.append(generator.on_periodic(0))
        else:
            generator.on_events(step["event_ts"])
    return {"periodic_outputs": outputs}


def _idle_outputs(given: Given) -> list[str]:
    found = re.search(r"-?\d+", str(given.get("inner", "")))
    delay_ms = int(found[0]) if found else 0
    generator = WatermarksWithIdleness(BoundedOutOfOrderness(delay_ms), given["timeout_ms"])
    outputs = []
    for step in given["steps"]:
        if "event_ts" in step:
            generator.on_events(step["event_ts"])
            continue
        was_idle = generator.is_idle
        watermark = generator.on_periodic(step["periodic_at_ms"])
        if watermark is None:
            outputs.append("IDLE")
        elif was_idle and generator.is_idle:
            outputs.append("none")
        else:
            outputs.append(f"watermark {watermark}")
    return outputs


def key_assignment(given: Given) -> Given:
    max_parallelism, parallelism = given["max_parallelism"], given["parallelism"]
    check_parallelism(max_parallelism, parallelism)
    word = str(given["key_type"]).lower()
    is_int32 = word in {"int32", "int", "integer", "short", "byte", "int16", "int8"}
    keys = given["keys"]
    if word in {"float", "double", "float64"}:
        keys = [float(key) for key in keys]
    key_type = Types.INT() if is_int32 else None
    partitioning = Partitioning(ShipStrategy.HASH, KeySelection(_same, key_type))
    partitioner = make_partitioner(partitioning, parallelism, 0, max_parallelism, 0)
    assignments = []
    for key in keys:
        group = key_group(key, max_parallelism, is_int32=is_int32)
        (channel,) = partitioner.channels_of(RowBatch([key]))
        assert channel == operator_index(group, max_parallelism, parallelism)
        assignments.append({"key": key, "key_group": group, "channel": channel})
    return {"assignments": assignments}


def _same(value: Any) -> Any:
    return value


def key_hash(given: Given) -> Given:
    return {"mixed": [murmur(value) for value in given["ints"]]}


def key_group_ranges(given: Given) -> Given:
    max_parallelism = given["max_parallelism"]
    answers: Given = {}
    parallelism = given.get("parallelism")
    if parallelism is not None:
        check_parallelism(max_parallelism, parallelism)
        ranges = [
            list(key_group_range(max_parallelism, parallelism, i)) for i in range(parallelism)
        ]
        answers["ranges"] = ranges
        answers["range_of_index"] = _Indexed(ranges)
    if "new_parallelism" in given:
        old, new = given["old_parallelism"], given["new_parallelism"]
        answers["restore_sources"] = {
            str(index): [
                {"old_index": source, "groups": list(groups)}
                for source, groups in restore_sources(max_parallelism, old, new, index)
            ]
            for index in range(new)
        }
    return answers


class _Indexed(dict[str, Any]):
    """Ranges by index as text: a case names a few indexes only."""

    def __init__(self, ranges: list[list[int]]) -> None:
        super().__init__({str(index): one for index, one in enumerate(ranges)})


def default_max(given: Given) -> Given:
    return {"max_parallelism": [default_max_parallelism(p) for p in given["parallelisms"]]}


def window_assign(given: Given) -> Given:
    word = given["fn"]
    if word == "window_start":
        start = TimeWindow.get_window_start_with_offset
        return {"starts": [start(a["ts"], a["offset"], a["size"]) for a in given["args"]]}
    if word == "invalid":
        return {"error": [_is_refused(case) for case in given["cases"]]}
    assigner = _assigner({**given, "kind": word})
    return {
        "windows_newest_first": [
            [[w.start, w.end] for w in assigner.assign_windows(None, ts, None)]
            for ts in given["timestamps"]
        ]
    }


def _lengths(case: Given, *names: str) -> list[Duration]:
    found = [*(case[name] for name in names), case.get("offset", 0)]
    return [Duration.of_millis(one) for one in found]


def _assigner(case: Given) -> Any:
    if case["kind"] == "tumbling":
        return TumblingEventTimeWindows.of(*_lengths(case, "size"))
    if case["kind"] == "sliding":
        return SlidingEventTimeWindows.of(*_lengths(case, "size", "slide"))
    return EventTimeSessionWindows.with_gap(Duration.of_millis(case.get("gap", case.get("size"))))


def _is_refused(case: Given) -> bool:
    try:
        _assigner(case)
    except ValueError:
        return True
    return False


def session_merge(given: Given) -> Given:
    assigner = EventTimeSessionWindows.with_gap(Duration.of_millis(given["gap"]))
    sessions = MergingWindowSet()
    per_add = []
    for one in given["adds"]:
        merged: list[Any] = []
        (window,) = assigner.assign_windows(None, one["ts"], None)
        actual = sessions.add(
            window,
            assigner.merge_windows,
            lambda _result, windows, _state, _states, merged=merged: merged.extend(windows),
        )
        per_add.append({"window": _pair(actual), "merged_existing": sorted(map(_pair, merged))})
    return {"per_add": per_add, "in_flight": sorted(map(_pair, sessions.mapping))}


def _pair(window: TimeWindow) -> list[int]:
    return [window.start, window.end]


# ------------------------------------------------------------------------------- timers


def timers(given: Given) -> Given:
    for key, adapter in _TIMER_CASES.items():
        if key in given:
            return adapter(given)
    raise AssertionError(f"no adapter for timers with {sorted(given)}")


def _service(now: int = 0) -> tuple[InternalTimerService, FakeTimers]:
    physical = FakeTimers()
    physical.now = now
    return InternalTimerService(physical), physical


def _timer_steps(given: Given) -> Given:
    service, _ = _service()
    added = [
        int(w) for w in str(given.get("callback", "")).replace(",", " ").split() if w.isdigit()
    ]
    fired: list[Given] = []
    stamps: list[int] = []
    for number, step in enumerate(given["steps"], 1):
        word, *rest = step
        if word == "watermark":
            count = 0
            for stamp, key, namespace in service.due_event(rest[0]):
                count += 1
                stamps.append(stamp)
                if added and stamp == added[0]:
                    for at in added[1:]:
                        service.register_event(at, key, namespace)
            fired.append({"after_step": number, "count": count})
        elif word == "register_event":
            service.register_event(rest[2], rest[0], rest[1])
        else:
            service.delete_event(rest[2], rest[0], rest[1])
    return {
        "fired": [one for one in fired if one["count"]],
        "fired_total": len(stamps),
        "fired_ts": stamps,
        "pending": [entry[0] for entry in service.event.entries()],
    }


def _past_timer(given: Given) -> Given:
    service, _ = _service()
    list(service.due_event(given["watermark"]))
    service.register_event(given["register_event"], "k", "n")
    is_fired = not service.event.entries()
    fires_at: int | None = None
    for watermark in (given["watermark"], given["then_watermark"]):
        if fires_at is None and watermark > service.current_watermark:
            fires_at = watermark if list(service.due_event(watermark)) else None
    return {"fires_at_registration": is_fired, "fires_at_watermark": fires_at}


def _physical(given: Given) -> Given:
    service, physical = _service()
    for stamp, key in given["processing"]:
        service.register_processing(stamp, key, "n")
    registered = [at - 1 for at in physical.scheduled]
    cancelled = [at - 1 for at in physical.cancelled]
    first = min(stamp for stamp, _ in given["processing"])
    physical.now, physical.due = first + 1, None
    fired = [key for _, key, _ in service.due_processing(first + 1)]
    after = {"fired": fired, "next_registered": None if physical.due is None else physical.due - 1}
    return {"registered": registered, "cancelled": cancelled, f"after_fire_at_{first}": after}


def _delays(given: Given) -> Given:
    delays = []
    for at in given["register_for"]:
        service, physical = _service(given["now"])
        service.register_processing(at, "k", "n")
        assert physical.due is not None
        delays.append(physical.due - given["now"])
    return {"delay_ms": delays}


def _seen_watermark(given: Given) -> Given:
    service, _ = _service()
    service.register_event(given["timer"], "k", "n")
    seen = [service.current_watermark for _ in service.due_event(given["watermark"])]
    return {"value_seen": seen[0]}


def _at_finish(given: Given) -> Given:
    service, _ = _service()
    for at in given.get("pending_processing", ()):
        service.register_processing(at, "k", "n")
    for at in given.get("pending_event", ()):
        service.register_event(at, "k", "n")
    fired = list(service.due_event(2**63 - 1)) if given.get("max_watermark") else []
    service.quiesce()
    dropped = list(service.due_processing(2**62))
    return {"processing_fired": bool(dropped), "event_fired": bool(fired)}


_TIMER_CASES: dict[str, Callable[[Given], Given]] = {
    "steps": _timer_steps,
    "register_event": _past_timer,
    "processing": _physical,
    "register_for": _delays,
    "watermark_callback_reads_current_watermark": _seen_watermark,
    "finish": _at_finish,
}


def ttl(given: Given) -> Given:
    now = [0]
    backend = HeapKeyedStateBackend(128, lambda: now[0])
    backend.set_key("k")
    builder = StateTtlConfig.new_builder(Duration.of_millis(given["ttl"]))
    if "update" in given:
        builder.set_update_type(StateTtlConfig.UpdateType[given["update"]])
    if "visibility" in given:
        builder.set_state_visibility(StateTtlConfig.StateVisibility[given["visibility"]])
    descriptor = ValueStateDescriptor("state", Types.STRING())
    descriptor.enable_time_to_live(builder.build())
    state = backend.get_state(descriptor)
    reads = []
    for word, at_ms in given["steps"]:
        now[0] = at_ms
        if word == "write":
            state.update("value")
        else:
            reads.append(state.value() or "none")
    return {"reads": reads}


def _key_group_ranges(given: Given, expect: Given) -> str | None:
    """A case may name some indexes only."""
    answers = key_group_ranges(given)
    for name in ("range_of_index", "restore_sources"):
        if name in expect and name in answers:
            wanted = expect[name]
            answers[name] = {index: answers[name].get(index) for index in wanted}
    if expect.get("error"):
        return f"expected a refusal, got {answers}"
    return differences(expect, answers)


AREAS: dict[str, Callable[..., Any]] = {
    "watermark_valve": watermark_valve,
    "combined_watermark": combined_watermark,
    "split_watermarks": split_watermarks,
    "watermark_generator": watermark_generator,
    "key_assignment": key_assignment,
    "key_hash": key_hash,
    "key_group_ranges": _key_group_ranges,
    "default_max_parallelism": default_max,
    "window_assign": window_assign,
    "session_merge": session_merge,
    "window_operator": window_operator,
    "timers": timers,
    "ttl": ttl,
}
