"""Settings of the environment, and running against a fake executor."""

import re

import pytest

from penstock.common import Configuration, Duration, RestartStrategies, Types, WatermarkStrategy
from penstock.common.job_status import JobStatus as ApiJobStatus
from penstock.connectors.file_system import FileSource, StreamFormat
from penstock.datastream import (
    CheckpointingMode,
    CloseableIterator,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors import NumberSequenceSource
from penstock.engine.compiler.job_graph_builder import build_job_graph
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.shipping import pickling
from penstock.engine.model.checkpoints import CheckpointType
from penstock.engine.model.errors import (
    ConfigurationError,
    GraphError,
    JobCancelledError,
    JobExecutionError,
    UserError,
)
from penstock.engine.model.ids import JobId
from penstock.engine.model.program import JobOutcome
from penstock.engine.model.states import JobStatus
from tests.tools.hosting.fake_executor import FakeExecutor
from tests.tools.programs.user_functions import same

NO_WATERMARKS = WatermarkStrategy.no_watermarks()


def environment(executor=None, **options):
    configuration = Configuration({key.replace("__", "."): v for key, v in options.items()})
    return StreamExecutionEnvironment.get_execution_environment(configuration).use_executor(
        executor or FakeExecutor()
    )


# ---------------------------------------------------------------------- settings


def test_setters_and_keys_are_two_names_for_one_thing():
    env = environment()
    env.set_parallelism(3).set_max_parallelism(64).set_buffer_timeout(5).disable_operator_chaining()
    assert env.get_configuration().to_dict() == {
        "parallelism.default": "3",
        "pipeline.max-parallelism": "64",
        "execution.buffer-timeout.enabled": "true",
        "execution.buffer-timeout.interval": "5 ms",
        "pipeline.operator-chaining.enabled": "false",
    }
    other = environment()
    other.configure(env.get_configuration())
    assert other.get_parallelism() == other.get_config().get_parallelism() == 3
    assert (other.get_max_parallelism(), other.get_buffer_timeout()) == (64, 5)
    assert not other.is_chaining_enabled()


def test_defaults_are_flinks():
    env = environment()
    assert env.get_config().get_parallelism() == -1
    assert env.get_parallelism() == env.get_default_local_parallelism() >= 1
    assert (env.get_max_parallelism(), env.get_buffer_timeout()) == (-1, 100)
    assert env.is_chaining_enabled()
    assert env.get_config().get_auto_watermark_interval() == 200
    assert env.get_checkpoint_interval() == -1
    assert env.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    checkpoints = env.get_checkpoint_config()
    assert checkpoints.get_checkpoint_timeout() == 600_000
    assert checkpoints.get_min_pause_between_checkpoints() == 0
    assert checkpoints.get_max_concurrent_checkpoints() == 1
    assert not env.get_checkpoint_config().is_checkpointing_enabled()


def test_the_settings_reach_graph_and_program():
    executor = FakeExecutor()
    env = environment(executor, pipeline__name="from key")
    env.set_parallelism(2).set_max_parallelism(16).set_buffer_timeout(-1)
    env.get_config().set_global_job_parameters({"a": 1}).set_auto_watermark_interval(50)
    env.enable_checkpointing(1000, CheckpointingMode.AT_LEAST_ONCE)
    env.from_collection([1]).map(same)
    env.execute()
    graph, program = executor.graph, executor.program
    assert (graph.job_name, graph.default_parallelism) == ("from key", 2)
    assert (graph.max_parallelism, graph.buffer_timeout_ms) == (16, -1)
    assert program.configuration["parallelism.default"] == "2"
    assert program.job_parameters == {"a": "1"}
    assert program.configuration["pipeline.auto-watermark-interval"] == "50 ms"
    assert program.configuration["execution.checkpointing.interval"] == "1000 ms"
    assert env.get_checkpoint_config().is_checkpointing_enabled()
    env.from_collection([1]).map(same)
    env.execute("given")
    assert executor.graph.job_name == "given"


def parallelisms(executor):
    graph = build_job_graph(executor.graph, JobId("job"), pickling.serialize)
    return {vertex.name: vertex.parallelism for vertex in graph.vertices.values()}


def test_a_default_parallelism_holds_for_operators_that_are_added_later():
    """As in Flink, where an operator takes the environment's parallelism when it is made."""
    executor = FakeExecutor()
    env = environment(executor).set_parallelism(3).disable_operator_chaining()
    numbers = env.from_source(NumberSequenceSource(0, 9), NO_WATERMARKS, "numbers")
    first = numbers.map(same).name("first")
    env.set_parallelism(2)
    first.map(same).name("second").map(same).set_parallelism(4).name("third").print().name("sink")
    env.execute()
    assert parallelisms(executor) == {
        "Source: numbers": 3,
        "first": 3,
        "second": 2,
        "third": 4,
        "Sink: sink": 2,
    }


def test_a_default_parallelism_holds_for_earlier_operators_if_none_was_set_then():
    executor = FakeExecutor()
    env = environment(executor).disable_operator_chaining()
    numbers = env.from_source(NumberSequenceSource(0, 9), NO_WATERMARKS, "numbers")
    first = numbers.map(same).name("first")
    env.set_parallelism(2)
    first.map(same).name("second")
    env.execute()
    assert set(parallelisms(executor).values()) == {2}


def test_what_is_added_beside_an_operator_has_its_parallelism():
    """A rename of fields and a sink of the driver keep the order of the records."""
    executor = FakeExecutor()
    env = environment(executor).set_parallelism(3)
    first = env.from_source(NumberSequenceSource(0, 9), NO_WATERMARKS, "numbers").map(same)
    env.set_parallelism(2)
    with first.execute_and_collect():
        pass
    assert set(parallelisms(executor).values()) == {3}


def test_without_a_name_the_job_has_flinks_default_name():
    executor = FakeExecutor()
    env = environment(executor)
    env.from_collection([1]).map(same)
    env.execute()
    assert executor.graph.job_name == "Flink Streaming Job"


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        (RestartStrategies.no_restart(), {"type": "disable"}),
        (RestartStrategies.fall_back_restart(), {}),
        (
            RestartStrategies.fixed_delay_restart(3, 250),
            {"type": "fixed-delay", "fixed-delay.attempts": "3", "fixed-delay.delay": "250 ms"},
        ),
        (
            RestartStrategies.failure_rate_restart(2, 60_000, 100),
            {
                "type": "failure-rate",
                "failure-rate.max-failures-per-interval": "2",
                "failure-rate.failure-rate-interval": "60000 ms",
                "failure-rate.delay": "100 ms",
            },
        ),
    ],
)
def test_restart_strategies_become_configuration_keys(strategy, options):
    env = environment()
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(9, 9))
    env.set_restart_strategy(strategy)
    assert env.get_configuration().to_dict() == {
        f"restart-strategy.{key}": value for key, value in options.items()
    }
    assert strategy.get_description()


def test_python_files_travel_with_the_program(tmp_path):
    executor = FakeExecutor()
    env = environment(executor)
    module, archive, requirements = (tmp_path / name for name in ("m.py", "a.zip", "r.txt"))
    for path in (module, archive, requirements):
        path.write_text("")
    env.add_python_file(str(module))
    env.add_python_archive(str(archive), "data")
    env.set_python_requirements(str(requirements))
    env.add_jars("file:///x.jar")
    env.from_collection([1]).map(same)
    env.execute()
    program = executor.program
    assert program.python_files == (str(module),)
    assert program.python_archives == ((str(archive), "data"),)
    assert program.python_requirements == (str(requirements), None)
    with pytest.raises(ConfigurationError, match=r"add_python_file: 'nowhere.py' does not exist"):
        env.add_python_file("nowhere.py")


def test_the_runtime_mode_is_that_of_the_program_or_of_its_sources():
    env = environment()
    env.from_collection([1]).print()
    assert not env.plumbing.stream_graph().is_batch
    env.set_runtime_mode(RuntimeExecutionMode.AUTOMATIC)
    assert env.plumbing.stream_graph().is_batch
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    assert env.plumbing.stream_graph().is_batch
    with pytest.raises(ConfigurationError, match=r"'SOMETIMES'.*STREAMING, BATCH, AUTOMATIC"):
        environment(**{"execution__runtime-mode": "sometimes"})


def test_wrong_settings_are_refused_with_what_would_do():
    env = environment()
    with pytest.raises(ConfigurationError, match=r"whole number >= 1, got 0"):
        env.set_parallelism(0)
    with pytest.raises(ConfigurationError, match=r"\[1, 32768\]"):
        env.set_max_parallelism(0)
    with pytest.raises(ConfigurationError, match="buffer timeout"):
        env.set_buffer_timeout(-2)
    with pytest.raises(ConfigurationError, match="at least 10 ms"):
        env.enable_checkpointing(1)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("set_checkpoint_interval", [9, "5 s", Duration.of_seconds(1), True]),
        ("set_checkpoint_timeout", [-1, 9, "5 s"]),
        ("set_min_pause_between_checkpoints", [-1, 0.5]),
        ("set_max_concurrent_checkpoints", [0, "1"]),
        ("set_tolerable_checkpoint_failure_number", [-1, None]),
    ],
)
def test_numbers_of_checkpoints_are_those_that_flink_takes(name, values):
    checkpoints = environment().get_checkpoint_config()
    for value in values:
        with pytest.raises(ConfigurationError, match=f"whole number, got {re.escape(repr(value))}"):
            getattr(checkpoints, name)(value)


def test_what_is_of_another_kind_than_a_setter_takes_is_told_with_an_example():
    env = environment()
    checkpoints, config = env.get_checkpoint_config(), env.get_config()
    for call, value, example in [
        (checkpoints.set_checkpointing_mode, "EXACTLY_ONCE", "CheckpointingMode.EXACTLY_ONCE"),
        (checkpoints.set_externalized_checkpoint_retention, "KEEP", "RETAIN_ON_CANCELLATION"),
        (env.set_restart_strategy, "none", r"RestartStrategies.fixed_delay_restart\(3, 1000\)"),
        (env.configure, {"a": "b"}, "Configuration.from_dict"),
        (env.register_slot_sharing_group, "large", "SlotSharingGroup.builder"),
        (config.set_global_job_parameters, "a=b", "{'key': 'value'}"),
    ]:
        with pytest.raises(TypeError, match=f"such as .*{example}.*, got "):
            call(value)
    with pytest.raises(TypeError, match="expected a Duration"):
        checkpoints.set_aligned_checkpoint_timeout("5 s")
    with pytest.raises(ConfigurationError, match=r"at least 0 ms, as a whole number, got Duration"):
        config.set_auto_watermark_interval(Duration.of_seconds(1))
    with pytest.raises(ConfigurationError, match=r"delay_between_attempts must be at least 0 ms"):
        RestartStrategies.fixed_delay_restart(3, Duration.of_seconds(1))


# ---------------------------------------------------------------------- running


def test_nothing_to_run_is_an_error_and_a_source_alone_is_nothing():
    env = environment()
    with pytest.raises(GraphError, match="No operators defined in streaming topology"):
        env.execute()
    env.from_collection([1])
    with pytest.raises(GraphError, match="No operators defined"):
        env.execute()


def test_a_run_clears_what_it_took_but_streams_stay_usable():
    executor = FakeExecutor()
    env = environment(executor)
    stream = env.from_collection([1]).map(same)
    env.execute()
    with pytest.raises(GraphError):
        env.execute()
    stream.print()
    env.execute()
    names = [node.name for node in executor.graph.nodes.values()]
    assert names == ["Source: Collection Source", "Map", "Sink: Print to Std. Out"]


def test_the_plan_can_be_asked_for_before_execute():
    env = environment()
    env.from_collection([1]).map(same)
    assert '"Map"' in env.get_execution_plan()
    env.execute()


def test_execute_gives_the_result_with_flinks_text():
    env = environment()
    env.from_collection([1]).map(same)
    result = env.execute()
    assert result.get_net_runtime() == 12
    assert str(result).splitlines() == [
        "Program execution finished",
        f"Job with JobID {result.get_job_id()} has finished.",
        "Job Runtime: 12 ms",
    ]


def test_a_failed_job_raises_with_the_users_traceback():
    text = 'Traceback (most recent call last):\n  File "job.py"\nValueError: boom'
    env = environment(FakeExecutor(JobOutcome(JobStatus.FAILED, 5, text)))
    env.from_collection([1]).map(same)
    with pytest.raises(JobExecutionError, match="ValueError: boom") as caught:
        env.execute()
    assert 'File "job.py"' in str(caught.value)


def test_a_job_client_tells_status_cancels_and_gives_the_result():
    executor = FakeExecutor()
    executor.control.is_over = False
    env = environment(executor)
    env.from_collection([1]).map(same)
    client = env.execute_async("async")
    assert client.get_job_status().result() is ApiJobStatus.RUNNING
    result = client.get_job_execution_result()
    assert not result.done()
    client.cancel().result()
    assert client.get_job_status().result() is ApiJobStatus.CANCELED
    with pytest.raises(JobCancelledError):
        result.result()
    assert isinstance(result.exception(), JobCancelledError) and result.done()


def test_a_job_client_asks_for_savepoints_and_tells_of_checkpoints():
    executor = FakeExecutor()
    env = environment(executor)
    env.from_collection([1]).map(same)
    client = env.execute_async("async")
    assert client.trigger_savepoint("here").result() == "/folder"
    assert client.stop_with_savepoint(True).result() == "/folder"
    assert client.stop_with_savepoint(False, "there").result() == "/folder"
    assert executor.control.savepoints == [
        (CheckpointType.SAVEPOINT, "here"),
        (CheckpointType.STOP_DRAIN, None),
        (CheckpointType.STOP_SUSPEND, "there"),
    ]
    assert client.get_checkpoints().result().completed == 3


def test_execute_and_collect_iterates_over_the_batches():
    executor = FakeExecutor(collected=[[1, 2], [], [3]])
    env = environment(executor)
    stream = env.from_collection([1], Types.INT()).map(same, Types.INT())
    with stream.execute_and_collect("job") as results:
        assert isinstance(results, CloseableIterator)
        assert next(results) == 1
        assert list(results) == [2, 3]
    assert not executor.control.is_cancelled
    node = list(executor.graph.nodes.values())[-1]
    assert (node.driver_stream, node.output_type) == ("collect-1", Types.INT())
    assert executor.control.streams == ["collect-1"]
    assert executor.graph.job_name == "job"


def test_a_limit_gives_a_list_and_ends_the_job():
    executor = FakeExecutor(collected=[[1, 2], [3]])
    executor.control.is_over = False
    stream = environment(executor).from_collection([1]).map(same)
    assert stream.execute_and_collect(limit=2) == [1, 2]
    assert executor.control.is_cancelled
    executor.control = FakeExecutor(collected=[[1]]).control
    assert stream.execute_and_collect(limit=5) == [1]
    with pytest.raises(GraphError, match="limit"):
        stream.execute_and_collect(limit=0)


def test_closing_early_cancels_and_collecting_from_a_failed_job_raises():
    executor = FakeExecutor(collected=[[1]])
    executor.control.is_over = False
    stream = environment(executor).from_collection([1]).map(same)
    results = stream.execute_and_collect()
    results.close()
    assert executor.control.is_cancelled
    assert list(results) == []
    failing = FakeExecutor(JobOutcome(JobStatus.FAILED, 1, "ValueError: boom"), [[1]])
    stream = environment(failing).from_collection([1]).map(same)
    with pytest.raises(JobExecutionError, match="boom"), stream.execute_and_collect() as results:
        list(results)


def add(first, second):
    return first + second


def test_another_error_of_the_executor_is_raised_as_it_is():
    executor = FakeExecutor()
    executor.submit = lambda graph, program: 1 / 0
    env = environment(executor)
    env.from_collection([1]).map(same)
    with pytest.raises(ZeroDivisionError):
        env.execute()


def test_sources_and_sinks_are_asked_before_anything_starts(tmp_path):
    executor = FakeExecutor()
    env = environment(executor)
    source = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(tmp_path / "gone")
    ).build()
    env.from_source(source, WatermarkStrategy.no_watermarks(), "files").map(same)
    with pytest.raises(ConfigurationError, match="does not exist"):
        env.execute()
    assert executor.submitted == []


def refused(stream, tmp_path):
    env, executor = stream.get_execution_environment(), MiniCluster(parallelism=2).executor()
    gone = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path / "x"))
    files = env.from_source(gone.build(), WatermarkStrategy.no_watermarks(), "files")
    return env.use_executor(executor), [
        (files, "does not exist"),
        (stream.map(same).set_parallelism(2).forward().map(same).set_parallelism(1), "equal"),
    ]


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("collects", [True, False])
def test_what_was_refused_is_not_run_again(which, collects, tmp_path):
    env, streams = refused(environment().from_collection([1, 2]), tmp_path)
    stream, told = streams[which]
    env.plumbing.program.clear()
    with pytest.raises(UserError, match=told):
        stream.execute_and_collect() if collects else (stream.print(), env.execute())
    with pytest.raises(GraphError, match="No operators defined"):
        env.execute()
    assert env.from_collection([3]).map(same).execute_and_collect(limit=1) == [3]


def test_from_source_wants_a_source_and_a_strategy():
    env = environment()
    with pytest.raises(TypeError, match="takes a Source"):
        env.from_source("x", WatermarkStrategy.no_watermarks(), "n")
    with pytest.raises(TypeError, match="no_watermarks"):
        env.from_source(NumberSequenceSource(1, 2), None, "n")


def test_from_collection_brings_values_to_the_declared_type():
    executor = FakeExecutor()
    env = environment(executor)
    env.from_collection([2**31, 1], Types.INT()).map(same)
    env.from_collection([]).map(same)
    env.execute()
    source = executor.graph.nodes[1].coordinator
    assert source._values == [-(2**31), 1]
