"""Adapters of operators, chains, sources: joins, status, order, alignment, assignment, latency."""

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.common import Duration
from penstock.engine.machines.checkpoints.restore import (
    Mode,
    OperatorStateShape,
    redistribute,
)
from penstock.engine.machines.sources import (
    NO_CHECKPOINT,
    SplitAssignmentTracker,
    WatermarkAlignment,
)
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import (
    ACTIVE,
    IDLE,
    MAX_WATERMARK,
    MIN_WATERMARK,
    LatencyMarker,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operator import Operator
from penstock.engine.runtime.operators import (
    CoGroupWindowFunction,
    Interval,
    IntervalJoinOperator,
    JoinWindowFunction,
    ListContents,
)
from penstock.engine.runtime.operators.windowed.window_operator import (
    GridWindowJoinOperator,
    RecordWindowJoinOperator,
)
from penstock.engine.runtime.sources.contract import Fetched, ReaderStatus, SplitBatch, SplitReader
from penstock.engine.runtime.sources.operator import SourceOperator, SourceSettings
from penstock.engine.runtime.sources.reader_base import SourceReaderBase
from penstock.engine.runtime.state.snapshot import OperatorSnapshot
from penstock.engine.runtime.task.latency import Granularity, LatencyStats
from penstock.engine.runtime.watermarks.strategy import WatermarkStrategy
from penstock.engine.runtime.windowing import TumblingEventTimeWindows
from tests.conformance.compare import differences, is_equal
from tests.tools.connectors.played_by_hand import FakeReaderContext
from tests.tools.runtime.operator_harness import OperatorHarness
from tests.tools.runtime.task_parts import opened

Given = dict[str, Any]
LEFT, RIGHT = 0, 1


# ------------------------------------------------------------------------------- joins


def _one_key(_value: Any) -> str:
    return "k"


_KEYS = (KeySelection(_one_key), KeySelection(_one_key))


def _pair(left: Any, right: Any, _context: Any) -> Any:
    yield [left, right]


def interval_join(given: Given, expect: Given) -> str | None:
    """Pairs compare in order or, because Flink's order among matches is that of a map, as a multiset."""
    interval = Interval(given["lower"], given["upper"])
    exclusive = bool(given.get("lower_exclusive")), bool(given.get("upper_exclusive"))
    operator = IntervalJoinOperator(UserFunction(_pair), _KEYS, interval, exclusive, ("L", "R"))
    harness = OperatorHarness(operator)
    for step in _join_steps(given):
        _join_step(harness, step)
    pairs = [pair for pair, _ in harness.stamped]
    stamps = [stamp for _, stamp in harness.stamped]
    got: Given = {"pairs": pairs, "timestamps": stamps}
    late = [value for tag in ("L", "R") for value in harness.side(tag)]
    got["late_dropped"] = late
    if "left_ts" in given:
        got["left_cleanup_timer"] = operator.cleanup_ms(LEFT, given["left_ts"])
    if "right_ts" in given:
        got["right_cleanup_timer"] = operator.cleanup_ms(RIGHT, given["right_ts"])
    if expect.get("error"):
        return "expected a refusal, got none"
    return _unordered_differences(expect, got, ("pairs", "timestamps"))


def _join_steps(given: Given) -> list[tuple[str, Any, int]]:
    """(what, value, timestamp). A step of one number is a record named by its timestamp."""
    steps = [("left", name, ts) for name, ts in given.get("left", ())]
    steps += [("right", name, ts) for name, ts in given.get("right", ())]
    for word, *rest in given.get("steps", ()):
        steps.append((word, rest[0], rest[-1]))
    return steps


def _join_step(harness: OperatorHarness, step: tuple[str, Any, int]) -> None:
    word, value, stamp = step
    if word.startswith("wm"):
        sides = {"left": (LEFT,), "right": (RIGHT,)}.get(word[2:].strip(), (LEFT, RIGHT))
        for side in sides:
            harness.watermark(stamp, side)
        return
    harness.feed([value], [stamp], LEFT if word == "left" else RIGHT)


def _unordered_differences(expect: Given, got: Given, keys: tuple[str, ...]) -> str | None:
    """As `differences`; rows of these keys (side by side) may come in any order."""
    text = differences(expect, got)
    present = [key for key in keys if key in expect]
    if text is None or not present:
        return text
    if any(len(expect[key]) != len(got[key]) for key in present):
        return text
    wanted = list(zip(*(expect[key] for key in present), strict=True))
    found = list(zip(*(got[key] for key in present), strict=True))
    for row in found:
        match = next((i for i, one in enumerate(wanted) if is_equal(list(one), list(row))), None)
        if match is None:
            return text
        wanted.pop(match)
    return differences(expect, {**got, **{key: expect[key] for key in present}})


def window_join(given: Given, expect: Given) -> str | None:
    answers = [_window_join(given, engine) for engine in _JOIN_ENGINES]
    assert all(answer == answers[0] for answer in answers), f"engines disagree: {answers}"
    (got,) = answers[:1]
    expect = {key: value for key, value in expect.items() if key != "unordered"}
    for key in ("join", "cogroup"):
        if key in expect:
            text = _unordered_differences({key: expect[key]}, got, (key,))
            if text is not None:
                return text
    rest = {key: value for key, value in expect.items() if key not in {"join", "cogroup"}}
    return differences(rest, got)


_JOIN_ENGINES = (GridWindowJoinOperator, RecordWindowJoinOperator)


def _window_join(given: Given, engine: Any) -> Given:
    joined, grouped = _joined(given, engine, is_join=True), _joined(given, engine, is_join=False)
    stamps = {stamp for _, stamp in (*joined.stamped, *grouped.stamped)}
    return {
        "join": joined.values,
        "cogroup": grouped.values,
        "output_ts": next(iter(stamps)) if len(stamps) == 1 else sorted(stamps),
    }


def _joined(given: Given, engine: Any, *, is_join: bool) -> OperatorHarness:
    start, end = given["window"]
    function: CoGroupWindowFunction = CoGroupWindowFunction(
        UserFunction(lambda left, right: [{"left": left, "right": right}])
    )
    if is_join:
        function = JoinWindowFunction(UserFunction(lambda left, right: [left, right]))
    operator = engine(
        side_keys=_KEYS,
        assigner=TumblingEventTimeWindows(end - start, start % (end - start)),
        contents=ListContents(),
        function=UserFunction(function.apply, function),
    )
    harness = OperatorHarness(operator)
    for side, name in ((LEFT, "left"), (RIGHT, "right")):
        values = given.get(name, [])
        harness.feed(values, [start] * len(values), side)
    for side in (LEFT, RIGHT):
        harness.watermark(end - 1, side)
    return harness


# ------------------------------------------------------------------------------- chains


class _Passing(Operator):
    """Hands everything on; tells the log what it is asked."""

    def __init__(self, name: str = "", log: list[tuple[str, str]] | None = None) -> None:
        self._name = name
        self._log = [] if log is None else log

    def _note(self, what: str) -> None:
        self._log.append((what, self._name))

    def open(self, context: Any) -> None:
        self._note("open")

    def process(self, batch: Any, input_index: int) -> Any:
        return (batch,)

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> Any:
        self._note("pre_barrier")
        return ()

    def snapshot(self) -> OperatorSnapshot:
        self._note("snapshot")
        return OperatorSnapshot()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._note("notify_complete")

    def finish(self) -> Any:
        self._note("finish")
        return ()

    def close(self) -> None:
        self._note("close")


def operator_order(given: Given) -> Given:
    log: list[tuple[str, str]] = []
    chain = opened([_Passing(name, log) for name in given["chain"]])
    list(chain.prepare_snapshot_pre_barrier(1))
    chain.snapshot()
    chain.notify_checkpoint_complete(1)
    list(chain.finish())
    chain.close()
    orders: Given = {}
    for what, name in log:
        orders.setdefault(what, []).append(name)
    return orders


def output_status(given: Given) -> Given:
    """One operator: what goes into it comes out as its output lets it."""
    chain = opened([_Passing()])
    forwarded = []
    for word in given["inputs"]:
        forwarded += [_word(element) for _, element in filter(None, chain.feed(_element(word)))]
    return {"forwarded": forwarded}


def _element(word: str) -> Any:
    if word in {"ACTIVE", "IDLE"}:
        return IDLE if word == "IDLE" else ACTIVE
    if word.startswith("watermark"):
        return Watermark(int(word.split()[-1]))
    return RowBatch([word])


def _word(element: Any) -> str:
    if isinstance(element, WatermarkStatus):
        return "IDLE" if element.idle else "ACTIVE"
    if isinstance(element, Watermark):
        return f"watermark {element.timestamp_ms}"
    return str(element.values[0])


def latency(given: Given) -> Given:
    granularities = given["granularity"]
    is_one = isinstance(granularities, str)
    counts = []
    for granularity in [granularities] if is_one else granularities:
        stats = LatencyStats(Granularity(granularity))
        for source in range(given["sources"]):
            for subtask in range(given["source_subtasks"]):
                stats.report(LatencyMarker(0, f"source {source}", subtask), 1)
        counts.append(len(stats.histograms))
    return {"histograms_in_this_subtask": counts[0] if is_one else counts}


def operator_state(given: Given) -> Given:
    shape = OperatorStateShape(Mode(given["mode"]), tuple(given["old_partition_counts"]))
    found = redistribute({"state": shape}, given["new_parallelism"])
    return {
        "new_subtasks": [
            {str(old): parts for old, parts in share.get("state", {}).items()} for share in found
        ]
    }


# ------------------------------------------------------------------------------- sources


def source_assignment(given: Given) -> Given:
    tracker = SplitAssignmentTracker()
    back: list[str] = []
    for step in given["steps"]:
        word, *rest = step.split()
        if word == "assign":
            *splits, _to, subtask = rest
            tracker.assign(_number(subtask), [split.strip(",") for split in splits])
        elif word == "reset":
            is_initial = rest[-1] == rest[0] or not rest[-1].lstrip("-").isdigit()
            restored = NO_CHECKPOINT if is_initial else int(rest[-1])
            back += tracker.reset(_number(rest[0]), restored)
        else:
            checkpoint_id = int(rest[-1])
            (tracker.checkpoint if word == "checkpoint" else tracker.complete)(checkpoint_id)
    return {"splits_back": back}


def _number(name: str) -> int:
    return int(name.lstrip("r"))


class _StillClock:
    def now_ms(self) -> int:
        return 0

    monotonic_ms = active_ms = now_ms


class _OneBatch:
    """A reader with one record at a timestamp."""

    def __init__(self, stamp: int) -> None:
        self._batch: SplitBatch | None = SplitBatch(RowBatch([stamp], np.array([stamp], np.int64)))

    def poll_next(self) -> Any:
        batch, self._batch = self._batch, None
        return batch or ReaderStatus.NOTHING_AVAILABLE


def source_alignment(given: Given) -> Given:
    group = WatermarkAlignment()
    for name, reported in given["reported"].items():
        watermark = _reported(reported)
        if watermark is not None:
            group.report(name, watermark)
    allowed = group.max_allowed_ms(given["max_drift"])
    waiting = [
        name
        for name, reported in given["reported"].items()
        if allowed is not None and _waits(_reported(reported), allowed)
    ]
    return {"max_allowed": allowed, "waiting": waiting}


def _reported(value: Any) -> int | None:
    if isinstance(value, str):
        return None if value in {"unset", "none", "nothing"} else MAX_WATERMARK
    return value


def _waits(watermark: int | None, allowed: int) -> bool:
    """Whether a real source operator with this watermark waits."""
    if watermark is None or watermark in {MAX_WATERMARK, MIN_WATERMARK}:
        return False
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment(
        "g", Duration.of_millis(1)
    )
    operator = SourceOperator(None, strategy)
    operator.start(_OneBatch(watermark + 1), _StillClock(), SourceSettings())
    operator.poll()
    operator.watermarks.on_periodic(0)
    operator.allow(allowed)
    return operator.is_waiting


class _Reader(SourceReaderBase):
    def create_split_reader(self) -> SplitReader:
        return None


class _Queue:
    """A fetcher that has fetched what the case says."""

    def __init__(self, has_records: bool) -> None:
        self._fetched = [Fetched([SplitBatch(RowBatch([1]), "s0")])] if has_records else []

    def add_splits(self, splits: Any) -> None:
        return

    def poll(self) -> Fetched | None:
        return self._fetched.pop() if self._fetched else None


class _ReaderContext(FakeReaderContext):
    def __init__(self, has_records: bool) -> None:
        super().__init__()
        self._has_records = has_records

    def start_fetcher(self, split_reader: Any) -> _Queue:
        return _Queue(self._has_records)


def source_reader(given: Given) -> Given:
    return {"status": [_reader_status(row) for row in given["rows"]]}


def _reader_status(row: Given) -> str:
    has_records = row["queue"] != "empty"
    reader = _Reader(_ReaderContext(has_records))
    open_splits = row.get("splits_open", 1 if has_records else 0)
    reader.add_splits([f"s{number}" for number in range(open_splits)])
    if row.get("no_more_splits"):
        reader.notify_no_more_splits()
    polled = reader.poll_next()
    return polled.value if isinstance(polled, ReaderStatus) else "MORE_AVAILABLE"


AREAS: dict[str, Callable[..., Any]] = {
    "interval_join": interval_join,
    "window_join": window_join,
    "operator_order": operator_order,
    "output_status": output_status,
    "latency": latency,
    "operator_state": operator_state,
    "source_assignment": source_assignment,
    "source_alignment": source_alignment,
    "source_reader": source_reader,
}
