"""Names, texts and settings as PyFlink has them, beyond what the lists of names and signatures hold. Nothing runs here."""

import importlib

import pytest

from penstock import common, datastream
from penstock.common import Configuration, ExecutionConfig, Row, Time
from penstock.common.serialization import RowFieldExtractorSchema
from penstock.datastream import MemorySize, StreamExecutionEnvironment, state
from penstock.datastream.window import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    EventTimeSessionWindows,
    GlobalWindows,
    TimeWindow,
)
from penstock.engine.model.config import Settings
from penstock.engine.model.options.checkpoints import StateBackendOptions
from penstock.engine.model.options.scheduling import RestartOptions


def test_rows_with_the_same_names_and_values_are_equal_in_any_order():
    assert Row(a=1, b=2) == Row(b=2, a=1)
    assert Row(a=1, b=2) != Row(a=1, c=2)
    assert Row(1, 2) != Row(a=1, b=2)
    assert Row(1, 2).get_fields_by_names(["a", "b"]) == [1, 2]


def test_metrics_are_found_where_pyflink_has_them():
    from penstock.metrics import Counter, Meter, MetricGroup

    group = MetricGroup()
    group.counter("seen").inc(n=2)
    group.meter("rate").mark_event()
    assert isinstance(group.counter("seen"), Counter)
    assert isinstance(group.meter("rate"), Meter)
    assert group.counter("seen").get_count() == 2


@pytest.mark.parametrize(
    "statement",
    [
        "import penstock.table.udf", "from penstock.table.expressions import col", "from penstock.table import DataTypes",
        "from penstock.table import EnvironmentSettings, StreamTableEnvironment", "import penstock.table; penstock.table.Table",
    ],
)  # fmt: skip
def test_the_table_api_says_what_to_use_instead(statement):
    with pytest.raises(
        NotImplementedError, match=r"pyflink\.table.* has no counterpart.*from_spark"
    ):
        exec(statement)  # ruff: ignore[exec-builtin] - of the list above


@pytest.mark.parametrize(
    ("module", "name", "instead"),
    [
        ("java_gateway", "get_gateway", "Python function"),
        ("testing.test_case_utils", "PyFlinkUTTestCase", "MiniCluster"),
        ("datastream.time_characteristic", "TimeCharacteristic", "WatermarkStrategy"),
        ("datastream.checkpoint_config", "ExternalizedCheckpointCleanup", "Retention"),
    ],
)
def test_what_programs_import_from_modules_of_java_tests_and_former_times_says_what_to_use(
    module, name, instead
):
    with pytest.raises(NotImplementedError, match=rf"pyflink\.{module}\.{name} .*{instead}"):
        getattr(importlib.import_module(f"penstock.{module}"), name)


def test_a_row_may_be_imported_from_the_table_api():
    from penstock.table import Row, RowKind

    assert (Row, RowKind) == (common.Row, common.RowKind)


@pytest.mark.parametrize(
    "written",
    [
        "Trigger[tuple, TimeWindow]", "WindowAssigner[tuple, TimeWindow]", "AsyncFunction[Row, int]",
        "BroadcastProcessFunction[int, int, str]", "KeyedBroadcastProcessFunction[str, int, int, str]", "ValueState[int]",
        "ListState[int]", "MapState[str, int]", "ProcessWindowFunction[tuple, tuple, str, TimeWindow]", "ReducingState[int]",
        "ProcessWindowFunction.Context[TimeWindow]", "TypeSerializer[TimeWindow]", "AsyncRetryPredicate[str]", "BroadcastState[str, int]",
    ],
)  # fmt: skip
def test_classes_may_be_written_with_type_parameters(written):
    names = {name: getattr(one, name) for one in (common, datastream, state) for name in dir(one)}
    assert eval(written, names) is not None  # ruff: ignore[suspicious-eval-usage] - of the list above


def test_a_configuration_is_made_of_another_one_and_keeps_what_was_set():
    first = Configuration()
    first.set_string("k1", "v1").set_integer("k2", 1).set_float("k3", 1.5).set_boolean("k4", True)
    second = Configuration(first)
    assert second == first
    assert str(second) == "{k1=v1, k2=1, k3=1.5, k4=true}"
    target = {}
    second.set_bytearray("k5", bytearray(b"x")).add_all_to_dict(target)
    assert target == {"k1": "v1", "k2": 1, "k3": 1.5, "k4": True, "k5": bytearray(b"x")}
    assert "k5" not in first.key_set()
    assert Configuration.parse_list_value(None) == []
    assert Configuration.parse_list_value("- a.jar\n- b.jar") == ["a.jar", "b.jar"]


def test_execution_configs_are_equal_when_their_settings_are():
    first, second = ExecutionConfig(), ExecutionConfig()
    assert (first, hash(first)) == (second, hash(second))
    first.set_parallelism(2)
    assert first != second
    second.set_parallelism(2)
    assert (first, hash(first)) == (second, hash(second))


def test_a_field_extractor_writes_the_text_of_a_field():
    schema = RowFieldExtractorSchema(1)
    assert schema.serialize(Row("key", 42)) == b"42"
    assert schema.serialize(Row("key", "ä")) == "ä".encode()
    assert schema.serialize(Row("key", None)) == schema.serialize(None) == b""
    with pytest.raises(ValueError, match="Field index must be non-negative"):
        RowFieldExtractorSchema(-1)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("datastream.data_stream", "MapFunction"), ("datastream.data_stream", "Types"),
        ("datastream.data_stream", "OutputTag"), ("datastream.functions", "ValueStateDescriptor"),
        ("datastream.functions", "MetricGroup"), ("datastream.window", "Time"), ("datastream.window", "OutputTag"),
        ("datastream.state", "Types"), ("common.watermark_strategy", "Duration"),
        ("datastream.connectors.file_system", "Encoder"), ("datastream.connectors.kafka", "DeliveryGuarantee"),
    ],
)  # fmt: skip
def test_names_that_pyflinks_modules_import_can_be_imported_from_them(module, name):
    assert getattr(importlib.import_module(f"penstock.{module}"), name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = importlib.import_module(f"penstock.{module}").Nothing


def test_options_are_read_by_their_former_names_too():
    former = Configuration()
    former.set_string("pipeline.operator-chaining", "false")
    former.set_string("execution.buffer-timeout", "1 min").set_string("state.backend", "rocksdb")
    env = StreamExecutionEnvironment.get_execution_environment(former)
    assert (env.is_chaining_enabled(), env.get_buffer_timeout()) == (False, 60_000)
    env.get_configuration().set_string("pipeline.operator-chaining.enabled", "true")
    assert env.is_chaining_enabled()
    settings = Settings(program=former.to_dict(), spark={"spark.penstock.restart-strategy": "none"})
    assert settings.get(StateBackendOptions.TYPE) == "rocksdb"
    assert settings.get(RestartOptions.TYPE) == "none"
    assert settings.ignored_keys() == []


def test_times_and_windows_print_and_compare_as_pyflinks():
    assert str(Time.seconds(3)) == "3000 ms"
    assert TimeWindow(1, 2) <= TimeWindow(1, 2) <= TimeWindow(1, 3)
    assert str(MemorySize.of_mebi_bytes(100)) == "100 mb"
    assert str(MemorySize(bytes_size=1536)) == "1536 bytes"
    assigners = [
        CountTumblingWindowAssigner.of(2), CountSlidingWindowAssigner.of(4, 2), GlobalWindows.create(),
        EventTimeSessionWindows.with_gap(Time.seconds(1)),
    ]  # fmt: skip
    assert [repr(assigner) for assigner in assigners] == [
        "CountTumblingWindowAssigner(2)", "CountSlidingWindowAssigner(4, 2)", "GlobalWindows()",
        "EventTimeSessionWindows(1000)",
    ]  # fmt: skip


def test_a_gauge_takes_a_function():
    from penstock.metrics import MetricGroup

    with pytest.raises(TypeError, match="gauge 'size' takes a function .* got 5"):
        MetricGroup().gauge("size", 5)


def test_the_version_is_where_pyflink_has_it():
    from penstock import __version__, version

    assert version.__version__ == __version__
