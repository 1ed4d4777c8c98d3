"""Errors, printed lines and records of hundreds of megabytes: they are cut, and neither hide the error nor break the job."""

import asyncio

import pytest

from penstock.common import Duration, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import KeyedProcessFunction, ProcessWindowFunction, RuntimeExecutionMode
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.model.errors import JobExecutionError
from tests.tools.programs.environments import minicluster_environment

HUGE = 250_000_000
MODES = [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH]


class HugeError(Exception):
    def __str__(self):
        return "x" * HUGE


class EndlessError(Exception):
    def __str__(self):
        text = "x"
        while text:
            text = "x"
        return text


class UnpicklableError(Exception):
    def __reduce__(self):
        raise TypeError("never")


class HugeRecord:
    def __repr__(self):
        return "r" * HUGE


class RaisingRecord:
    def __repr__(self):
        raise SystemExit


class OwnEnd(BaseException):
    pass


def fails_with(error):
    def fail(value):
        raise error

    return fail


def failure_of(mode, build):
    env = minicluster_environment(MiniCluster(parallelism=1, observer=JobObserver()))
    build(env.set_runtime_mode(mode).from_collection([7])).print()
    with pytest.raises(JobExecutionError) as caught:
        env.execute("fails")
    return str(caught.value)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt("over"),
        GeneratorExit("over"),
        SystemExit("over"),
        asyncio.CancelledError("over"),
        OwnEnd("over"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("operator", ["map", "flat_map", "keyed map"])
def test_what_is_no_exception_fails_the_job_like_one(mode, error, operator):
    def build(ds):
        if operator == "map":
            return ds.map(fails_with(error)).name("Ender")
        if operator == "flat_map":
            return ds.flat_map(generator(error)).name("Ender")
        return ds.key_by(lambda v: v).map(fails_with(error)).name("Ender")

    text = failure_of(mode, build)
    assert f"{type(error).__name__}: over" in text
    assert "in operator: Ender" in text
    assert "at record:   7" in text
    assert "test_sizes_of_errors.py" in text


def generator(error):
    def fail(value):
        yield value
        raise error

    return fail


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (HugeError(), "HugeError: xxx"),
        (EndlessError(), "EndlessError: <EndlessError whose str took too long>"),
    ],
    ids=["huge", "endless"],
)
def test_an_error_with_a_bad_text_is_told(mode, error, told):
    text = failure_of(mode, lambda ds: ds.map(fails_with(error)).name("Fails"))
    assert told in text
    assert "in operator: Fails" in text and "at record:   7" in text
    assert len(text) < 100_000


def unpicklable(value):
    raise UnpicklableError("plain")


@pytest.mark.parametrize("mode", MODES)
def test_an_error_that_cannot_be_pickled_is_told(mode):
    text = failure_of(mode, lambda ds: ds.map(unpicklable))
    assert "UnpicklableError: plain" in text and "at record:   7" in text


@pytest.mark.parametrize(
    ("record", "told"),
    [(HugeRecord(), "rrr"), (RaisingRecord(), "<RaisingRecord whose repr raised SystemExit>")],
    ids=["huge", "raising"],
)
def test_a_record_with_a_bad_repr_hides_nothing(record, told):
    text = failure_of(
        MODES[0], lambda ds: ds.map(lambda _: record).map(fails_with(ValueError("the error")))
    )
    assert "ValueError: the error" in text and f"at record:   {told}" in text
    assert len(text) < 100_000


def test_a_huge_line_is_printed_in_part_and_says_so(capfd):
    env = minicluster_environment(MiniCluster(parallelism=1, observer=JobObserver()))
    env.from_collection([1]).map(lambda _: "p" * HUGE).print()
    env.from_collection([2]).map(str).print()
    env.execute("prints")
    lines = sorted(capfd.readouterr().out.splitlines())
    assert lines[0] == "2"
    assert lines[1].startswith("ppp") and lines[1].endswith(" … cut: 250 million characters")
    assert len(lines[1]) < 300_000


def test_a_record_that_is_too_large_for_the_driver_is_told():
    env = minicluster_environment(MiniCluster(parallelism=1, observer=JobObserver()))
    rows = env.from_collection([1]).map(lambda _: b"x" * (HUGE + (20 << 20))).name("Large")
    with pytest.raises(JobExecutionError, match=r"a record of 270,971,\d+ bytes of 'Sink: Data"):
        rows.execute_and_collect(limit=1)


class Stamps(TimestampAssigner):
    def __init__(self, extract):
        self.extract = extract

    def extract_timestamp(self, value, record_timestamp):
        return self.extract(value)


class AtTimer(KeyedProcessFunction):
    def __init__(self, fail):
        self.fail = fail

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value)

    def on_timer(self, timestamp, ctx):
        self.fail(timestamp)


class AtWindow(ProcessWindowFunction):
    def __init__(self, fail):
        self.fail = fail

    def process(self, key, context, elements):
        yield key
        self.fail(elements)


def stamped(ds, extract=lambda value: value):
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    return ds.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(Stamps(extract)))


def windowed(ds):
    return stamped(ds).key_by(str).window(TumblingEventTimeWindows.of(Duration.of_millis(10)))


BESIDE_RECORDS = {
    "key selector": (lambda ds, fail: ds.key_by(fail).map(str), "at record:   7"),
    "partitioner": (
        lambda ds, fail: ds.partition_custom(lambda key, n: fail(key), lambda v: v).map(str),
        "at record:   7",
    ),
    "timestamps": (stamped, "at record:   7"),
    "timer": (
        lambda ds, fail: stamped(ds).key_by(str).process(AtTimer(fail)),
        "at timer:    FiredTimer(key='7', timestamp=7, domain='EVENT_TIME')",
    ),
    "window": (
        lambda ds, fail: windowed(ds).process(AtWindow(fail)),
        "at window:   FiredWindow(key='7', window=TimeWindow(start=0, end=10))",
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "error", [ValueError("over"), OwnEnd("over")], ids=lambda e: type(e).__name__
)
@pytest.mark.parametrize("name", BESIDE_RECORDS)
def test_a_function_that_is_called_beside_the_records_tells_at_what_it_failed(mode, error, name):
    build, place = BESIDE_RECORDS[name]
    text = failure_of(mode, lambda ds: build(ds, fails_with(error)))
    assert f"{type(error).__name__}: over" in text
    assert place in text
    assert ("key_by at:" in text) == (name == "key selector")


class OfAnyType:
    def __repr__(self):
        raise SystemExit


@pytest.mark.parametrize("mode", MODES)
def test_a_record_with_a_bad_repr_does_not_hide_that_its_type_is_wrong(mode):
    text = failure_of(
        mode, lambda ds: ds.map(lambda _: OfAnyType(), Types.INT()).key_by(str).map(str)
    )
    assert "OfAnyType whose repr raised SystemExit" in text and "expected int" in text
