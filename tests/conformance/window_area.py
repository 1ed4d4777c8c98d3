"""Adapter of the area window_operator: texts to assigners, triggers, evictors; steps to a real operator.

Where both engines can do a case, both run it and must agree.
"""

import re
from collections.abc import Callable
from typing import Any

from penstock.engine.runtime import operators as ops
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import MAX_WATERMARK, Watermark
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operators import ListContents, ReduceContents
from penstock.engine.runtime.operators.windowed.base import WindowOperator
from penstock.engine.runtime.operators.windowed.grid import GridWindowOperator
from penstock.engine.runtime.operators.windowed.records import RecordWindowOperator
from penstock.engine.runtime.windowing import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeEvictor,
    TimeWindow,
    TumblingEventTimeWindows,
)
from tests.conformance.compare import differences
from tests.tools.runtime.operator_harness import OperatorHarness, stamped

Given = dict[str, Any]
LATE = "late"


def window_operator(given: Given, expect: Given) -> str | None:
    if expect.get("error"):
        _answers(given)
        return "expected a refusal, got none"
    got = _answers(given)
    wanted = expect.get("emitted")
    if wanted is not None:
        got["emitted"] = [
            {key: one.get(key) for key in (wanted[i] if i < len(wanted) else one)}
            for i, one in enumerate(got.get("emitted", ()))
        ]
    return differences(expect, got)


def _answers(given: Given) -> Given:
    if "contents_ts" in given:
        pairs = [((index, ts), ts) for index, ts in enumerate(given["contents_ts"])]
        return {"kept_ts": [ts for _, ts in _evictor(given["evictor"]).kept(pairs)]}
    if "element_ts" in given:
        return _one_element(given)
    if "window" in given:
        return _cleanup(given)
    answers = [_steps(given, engine) for engine in _engines(given)]
    agreed = [_in_one_order(answer) for answer in answers]
    assert all(one == agreed[0] for one in agreed), f"engines disagree: {answers}"
    return answers[0]


def _in_one_order(answer: Given) -> Given:
    """Windows with the same last time fire in any order. Only at the end of time have several windows the same one."""
    emitted = sorted(
        answer["emitted"], key=lambda one: (one["after_step"], one["ts"], one["window"])
    )
    return {**answer, "emitted": emitted}


def _engines(given: Given) -> list[type[WindowOperator]]:
    made = _operator(given, ops.window_operator)
    if isinstance(made, GridWindowOperator) and made.evictor is None:
        return [GridWindowOperator, RecordWindowOperator]
    return [RecordWindowOperator]


def _steps(given: Given, engine: type[WindowOperator]) -> Given:
    harness = OperatorHarness(_operator(given, engine))
    emitted = []
    for number, (word, *rest) in enumerate(given["steps"], 1):
        if word == "wm":
            taken = harness.watermark(rest[0])
        else:
            value = rest[1] if len(rest) > 1 else 1
            taken = harness.feed([(rest[0], value)], [rest[0]])
        for (window, value), ts in stamped(e for e in taken if not isinstance(e, Watermark)):
            shown = [window.start, window.end] if isinstance(window, TimeWindow) else "global"
            emitted.append({"after_step": number, "window": shown, "value": value, "ts": ts})
    pending = sorted(_pending(harness.operator))
    return {
        "emitted": emitted,
        "dropped_late": harness.late.get_count(),
        "side_output": [ts for ts, _ in harness.side(LATE)],
        "emitted_windows_pending": [list(window) for window in pending],
    }


def _pending(operator: Any) -> set[tuple[int, int]]:
    if isinstance(operator, GridWindowOperator):
        windows = map(operator.assigner.window, operator.tables.known)
        return {(window.start, window.end) for window in windows}
    return {(w.start, w.end) for w in operator.window_state.tables if isinstance(w, TimeWindow)}


def _one_element(given: Given) -> Given:
    """One element against a watermark and the windows that exist."""
    harness = OperatorHarness(_operator(given, ops.window_operator))
    gap = int(str(given["assigner"]).split()[-1])
    for start, end in given.get("existing", ()):
        times = [*range(start, end - gap, gap), end - gap]
        harness.feed([(ts, 1) for ts in times], times)
    harness.watermark(given["watermark"])
    harness.feed([(given["element_ts"], 1)], [given["element_ts"]])
    dropped = harness.late.get_count()
    return {"accepted": dropped == 0, "dropped_late": dropped}


def _cleanup(given: Given) -> Given:
    window = TimeWindow(*given["window"])
    given = {"assigner": f"tumbling {window.end - window.start}", **given}
    operator = _operator(given, RecordWindowOperator)
    harness = OperatorHarness(operator)
    if "watermark" in given:
        harness.watermark(given["watermark"])
    harness.feed([(window.start, 1)], [window.start])
    cleanup = operator.cleanup_ms(window)
    at = [entry[0] for entry in operator.timers.event.entries()]
    registered = cleanup != MAX_WATERMARK and cleanup in at
    return {"cleanup_time": cleanup, "cleanup_timer_registered": registered}


def _operator(given: Given, engine: Callable[..., WindowOperator]) -> WindowOperator:
    agg = given.get("agg", "sum")
    is_list = agg not in _REDUCE or "evictor" in given
    contents = ListContents() if is_list else ReduceContents(UserFunction(_REDUCE[agg]))
    operator = engine(
        keys=KeySelection(_constant),
        assigner=_assigner(given["assigner"]),
        contents=contents,
        trigger=_trigger(given["trigger"]) if "trigger" in given else None,
        allowed_lateness_ms=given.get("lateness", 0),
        late_tag=LATE if given.get("late_tag") else None,
        function=UserFunction(_Shown(agg).apply),
    )
    if "evictor" in given:
        operator.evictor = _evictor(given["evictor"])
    return operator


class _Shown:
    """Window function: (window, what the case calls the value)."""

    def __init__(self, agg: str) -> None:
        self._agg = agg

    def apply(self, _key: Any, window: Any, inputs: list[Any]) -> list[Any]:
        values = [value for _, value in inputs]
        if self._agg == "list":
            return [(window, values)]
        return [(window, _FINISH[self._agg.split()[-1]](values))]


def _constant(_value: Any) -> str:
    return "k"


_REDUCE: dict[str, Any] = {
    "sum": lambda a, b: (b[0], a[1] + b[1]),
    "max": lambda a, b: (b[0], max(a[1], b[1])),
    "min": lambda a, b: (b[0], min(a[1], b[1])),
}
_FINISH: dict[str, Any] = {"sum": sum, "max": max, "min": min, "count": len}


def _plain(text: str) -> str:
    """`purging(count=2)` as `purging count 2`."""
    return re.sub(r"[(),=]+", " ", text).strip()


def _numbers(text: str) -> list[int]:
    return [int(word) for word in _plain(text).split() if word.lstrip("-").isdigit()]


def _assigner(text: str) -> Any:
    numbers = _numbers(text)
    if text.startswith("tumbling"):
        return TumblingEventTimeWindows(*numbers)
    if text.startswith("sliding"):
        return SlidingEventTimeWindows(*numbers)
    if text.startswith("session"):
        return EventTimeSessionWindows(*numbers)
    return GlobalWindows()


def _trigger(text: str) -> Any:
    word, _, rest = _plain(text).partition(" ")
    if word == "purging":
        return PurgingTrigger(_trigger(rest))
    numbers = _numbers(text)
    if word == "count":
        return CountTrigger(*numbers)
    if word == "continuous":
        return ContinuousEventTimeTrigger(*numbers)
    if word == "delta":
        return DeltaTrigger(numbers[0], lambda a, b: b[1] - a[1])
    return NeverTrigger() if word == "never" else EventTimeTrigger()


def _evictor(text: str) -> Any:
    after = "after" in text
    (number, *_) = _numbers(text)
    if text.startswith("count"):
        return CountEvictor(number, do_evict_after=after)
    if text.startswith("time"):
        return TimeEvictor(number, do_evict_after=after)
    return DeltaEvictor(number, lambda a, b: b[1] - a[1], do_evict_after=after)
