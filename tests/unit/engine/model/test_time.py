"""Lengths of time have a unit: a bare number is refused wherever PyFlink takes a Time or a Duration."""

import datetime as dt

import numpy as np
import pytest

from penstock.common import Duration, Time, WatermarkStrategy
from penstock.common.restart_strategy import RestartStrategies
from penstock.connectors.elasticsearch import Elasticsearch7SinkBuilder
from penstock.connectors.file_system import FileSource, RollingPolicy, StreamFormat
from penstock.connectors.http import HttpSink, HttpSource, WebhookSource
from penstock.connectors.jdbc import JdbcExecutionOptions
from penstock.connectors.lakehouse import DeltaSource, IcebergSource
from penstock.connectors.mqtt import MqttSource
from penstock.connectors.pulsar import MessageDelayer
from penstock.connectors.redis import RedisStreamSink
from penstock.connectors.sql_lookup import LookupCache
from penstock.connectors.sql_sink import SqlSink
from penstock.datastream import AsyncDataStream, AsyncFunction, StreamExecutionEnvironment
from penstock.datastream.functions import AsyncRetryStrategy
from penstock.datastream.state import StateTtlConfig
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.time import millis_of, millis_or_number

SECOND = Duration.of_seconds(1)


class Same(AsyncFunction):
    async def async_invoke(self, value):
        return [value]


def numbers():
    return StreamExecutionEnvironment.get_execution_environment().from_collection([1])


def joined():
    keyed = numbers().key_by(lambda value: value)
    return keyed.interval_join(keyed)


WANTED = {
    "ttl": StateTtlConfig.new_builder,
    "ttl again": StateTtlConfig.new_builder(SECOND).set_ttl,
    "compaction": lambda length: StateTtlConfig.new_builder(
        SECOND
    ).cleanup_in_rocksdb_compact_filter(1, length),
    "out of order": WatermarkStrategy.for_bounded_out_of_orderness,
    "idle": WatermarkStrategy.for_monotonous_timestamps().with_idleness,
    "drift": lambda length: WatermarkStrategy.no_watermarks().with_watermark_alignment("g", length),
    "alignment": lambda length: WatermarkStrategy.no_watermarks().with_watermark_alignment(
        "g", SECOND, length
    ),
    "tumbling": TumblingEventTimeWindows.of,
    "tumbling offset": lambda length: TumblingEventTimeWindows.of(Duration.of_hours(1), length),
    "tumbling by the clock": TumblingProcessingTimeWindows.of,
    "sliding": lambda length: SlidingEventTimeWindows.of(Duration.of_hours(1), length),
    "sliding size": lambda length: SlidingEventTimeWindows.of(length, SECOND),
    "sliding by the clock": lambda length: SlidingProcessingTimeWindows.of(SECOND, length),
    "gap": EventTimeSessionWindows.with_gap,
    "gap by the clock": ProcessingTimeSessionWindows.with_gap,
    "trigger": ContinuousEventTimeTrigger.of,
    "trigger by the clock": ContinuousProcessingTimeTrigger.of,
    "evictor": TimeEvictor.of,
    "interval join": lambda length: joined().between(Duration.of_seconds(-1), length),
    "async": lambda length: AsyncDataStream.ordered_wait(numbers(), Same(), length),
    "async unordered": lambda length: AsyncDataStream.unordered_wait(numbers(), Same(), length),
    "aligned timeout": lambda length: (
        StreamExecutionEnvironment
        .get_execution_environment()
        .get_checkpoint_config()
        .set_aligned_checkpoint_timeout(length)
    ),
    "new files": lambda length: FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), "/folder"
    ).monitor_continuously(length),
    "pulsar": MessageDelayer.fixed,
    "http": HttpSink.builder().set_timeout,
    "http source": HttpSource.builder().set_interval,
    "webhook": WebhookSource.builder().set_answer_timeout,
    "mqtt": MqttSource.builder().set_session_expiry,
    "redis": RedisStreamSink.builder().set_mark_retention,
    "sql": SqlSink.builder().set_commit_retention,
    "delta": DeltaSource.for_continuous_row_data("/table").update_check_interval,
    "lookup": lambda length: LookupCache(10, expire_after_write=length),
    "iceberg": IcebergSource.for_continuous_row_data("a.b").monitor_interval,
}  # fmt: skip


@pytest.mark.parametrize("number", [3600, 10.5, 1 << 40])
@pytest.mark.parametrize("name", WANTED)
def test_a_number_without_a_unit_is_refused_with_the_call_to_write(name, number):
    with pytest.raises(TypeError, match=rf"got \w+: {number}, which has no unit. Write Duration\."):
        WANTED[name](number)


@pytest.mark.parametrize("length", [SECOND, Time.seconds(1), dt.timedelta(seconds=1)], ids=repr)
@pytest.mark.parametrize("name", WANTED)
def test_each_kind_of_length_is_taken(name, length):
    WANTED[name](length)


def test_what_pyflink_documents_in_milliseconds_takes_a_whole_number():
    assert millis_or_number(5) == 5
    assert millis_or_number(SECOND) == 1000
    with pytest.raises(TypeError, match=r"got float: 0\.5, which has no unit"):
        millis_or_number(0.5)


MILLISECONDS = {
    "rollover": lambda ms: RollingPolicy.default_rolling_policy(rollover_interval=ms),
    "inactivity": lambda ms: RollingPolicy.default_rolling_policy(inactivity_interval=ms),
    "retry": lambda ms: AsyncRetryStrategy.fixed_delay(3, ms),
    "growing retry": lambda ms: AsyncRetryStrategy.exponential_backoff(3, ms, 10_000, 2.0),
    "longest retry": lambda ms: AsyncRetryStrategy.exponential_backoff(3, 1, ms, 2.0),
    "documents": Elasticsearch7SinkBuilder().set_bulk_flush_interval,
    "connect": Elasticsearch7SinkBuilder().set_connection_timeout,
    "rows": JdbcExecutionOptions.builder().with_batch_interval_ms,
    "restart": lambda ms: RestartStrategies.fixed_delay_restart(3, ms),
}


@pytest.mark.parametrize(
    "wrong", [SECOND, Time.seconds(1), dt.timedelta(1), None, "5", 1.5, float("nan"), True, 10**20]
)
@pytest.mark.parametrize("name", MILLISECONDS)
def test_a_number_of_ms_is_a_whole_number(name, wrong):
    with pytest.raises(
        ConfigurationError, match=r"must be at (least|most) \d+ ms, as a whole number"
    ):
        MILLISECONDS[name](wrong)
    MILLISECONDS[name](50)


@pytest.mark.parametrize(
    "make",
    [
        Time.seconds,
        Time.milliseconds,
        Time.days,
        Duration.of_nanos,
        Duration.of_millis,
        Duration.of_minutes,
        Duration,
        Time,
    ],
)
def test_an_amount_is_a_number(make):
    """`"10" * 1000` would be a number of two thousand digits."""
    for wrong in ("10", None, [1], True, SECOND):
        with pytest.raises(TypeError, match="expected a number, got"):
            make(wrong)
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="is no whole number of"):
            make(wrong)


def test_a_part_of_a_unit_is_kept_or_refused():
    assert Duration.of_seconds(1.1).to_millis() == 1100
    assert Duration.of_millis(0.5).to_nanos() == 500_000
    assert Time.days(0.5) == Time.hours(12)
    assert Time.seconds(np.int32(2)) == Time.seconds(2)
    for make, amount in (
        (Time.seconds, 0.0005),
        (Time.milliseconds, 0.9),
        (Duration.of_nanos, 0.5),
    ):
        with pytest.raises(ValueError, match=f"{amount} is no whole number of"):
            make(amount)


@pytest.mark.parametrize("length", [True, "5 s", None])
def test_others_are_no_lengths(length):
    with pytest.raises(TypeError, match="expected a Duration, Time or timedelta, got"):
        millis_of(length)
