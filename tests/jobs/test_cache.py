"""cache(): the first job of an environment keeps the records, later ones read them (Flink CacheTransformation)."""

import tempfile

import pytest

from penstock.common import Duration, Row, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.connectors.file_system import FileSource, StreamFormat
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.data_stream import CachedDataStream
from penstock.datastream.functions import ProcessFunction
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.errors import GraphError, JobExecutionError
from tests.tools.permissions import open_to_others, umask
from tests.tools.programs.environments import collected_in_order, minicluster_environment

COMPUTED = []


@pytest.fixture(params=[RuntimeExecutionMode.BATCH, RuntimeExecutionMode.STREAMING])
def env(request):
    COMPUTED.clear()
    made = minicluster_environment(MiniCluster(parallelism=2))
    made.set_runtime_mode(request.param)
    yield made
    made.close()


def counted(value):
    COMPUTED.append(value)
    return value * 10


def test_a_second_job_reads_what_the_first_has_kept(env):
    cached = env.from_collection([1, 2, 3]).map(counted).cache()
    assert isinstance(cached, CachedDataStream)
    assert cached.cache() is cached
    assert collected_in_order(cached) == [10, 20, 30]
    assert collected_in_order(cached.map(lambda value: value + 1)) == [11, 21, 31]
    assert collected_in_order(cached.key_by(lambda value: value).map(lambda value: -value)) == [
        -30,
        -20,
        -10,
    ]
    assert sorted(COMPUTED) == [1, 2, 3]


def test_streams_that_were_built_before_the_first_job_read_it_too(env):
    cached = env.from_collection([1, 2]).map(counted).cache()
    more, less = cached.map(lambda value: value + 1), cached.map(lambda value: value - 1)
    assert collected_in_order(more) == [11, 21]
    env.plumbing.program.clear()
    assert collected_in_order(less.union(cached)) == [9, 10, 19, 20]
    assert sorted(COMPUTED) == [1, 2]


def test_what_was_invalidated_is_computed_again(env):
    cached = env.from_collection([1, 2]).map(counted).cache()
    for _ in range(2):
        assert collected_in_order(cached) == [10, 20]
    cached.invalidate()
    cached.invalidate()
    for _ in range(2):
        assert collected_in_order(cached) == [10, 20]
    assert sorted(COMPUTED) == [1, 1, 2, 2]


def test_a_closed_environment_has_forgotten_what_it_kept(env):
    cached = env.from_collection([1]).map(counted).cache()
    collected_in_order(cached)
    env.close()
    assert collected_in_order(cached) == [10]
    assert COMPUTED == [1, 1]


def test_a_job_that_fails_keeps_nothing(env):
    cached = env.from_collection([1, 2]).map(counted).cache()
    with pytest.raises(JobExecutionError, match="ZeroDivisionError"):
        collected_in_order(cached.map(lambda value: value // 0))
    COMPUTED.clear()
    env.plumbing.program.clear()
    assert collected_in_order(cached) == [10, 20]
    assert sorted(COMPUTED) == [1, 2]


class ByNumber(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value.n


class Stamp(ProcessFunction):
    def process_element(self, value, ctx):
        yield (value.n, ctx.timestamp())


def test_types_and_timestamps_are_kept(env):
    kind = Types.ROW_NAMED(["n"], [Types.LONG()])
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_seconds(1)
    ).with_timestamp_assigner(ByNumber())
    cached = (
        env
        .from_collection([Row(n=5), Row(n=7)], kind)
        .assign_timestamps_and_watermarks(strategy)
        .cache()
    )
    assert cached.get_type() == kind
    for _ in range(2):
        assert collected_in_order(cached.process(Stamp())) == [(5, 5), (7, 7)]


def test_kept_records_are_this_users_alone_and_not_read_where_others_may_write(
    env, tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with umask(0):
        cached = env.from_collection([1, 2]).map(counted).cache()
        assert collected_in_order(cached) == [10, 20]
    (folder,) = tmp_path.glob("penstock-results-*")
    assert list(folder.iterdir())
    assert open_to_others(tmp_path) == {}
    folder.chmod(0o770)
    with pytest.raises(JobExecutionError, match=f"other users may write to '{folder}'"):
        collected_in_order(cached)


def test_an_empty_stream_is_kept(env):
    cached = env.from_collection([1]).map(counted).filter(lambda value: False).cache()
    assert collected_in_order(cached) == collected_in_order(cached) == []
    assert COMPUTED == [1]


def test_a_plan_computes_and_keeps_nothing(env):
    cached = env.from_collection([1]).map(counted).cache()
    cached.print()
    assert "Cache" in env.get_execution_plan()
    assert COMPUTED == []


def test_settings_belong_on_the_operator_before(env):
    cached = env.from_collection([1]).cache()
    for call in (
        lambda: cached.name("n"),
        cached.get_name,
        lambda: cached.uid("u"),
        lambda: cached.set_uid_hash("0" * 32),
        lambda: cached.set_parallelism(2),
        lambda: cached.set_max_parallelism(2),
        cached.force_non_parallel,
        lambda: cached.set_buffer_timeout(1),
        cached.start_new_chain,
        cached.disable_chaining,
        lambda: cached.slot_sharing_group("g"),
    ):
        with pytest.raises(GraphError, match="on a CachedDataStream"):
            call()
    with pytest.raises(GraphError, match="before key_by"):
        cached.key_by(lambda value: value).cache()


def test_a_stream_without_an_end_cannot_be_kept(tmp_path):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.use_executor(MiniCluster().executor())
    form = StreamFormat.text_line_format()
    source = FileSource.for_record_stream_format(form, str(tmp_path))
    source.monitor_continuously(Duration.of_millis(10))
    stream = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "lines")
    stream.cache().print()
    with pytest.raises(GraphError, match="'Source: lines' has no end"):
        env.execute()
