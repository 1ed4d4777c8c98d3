"""Options, texts, layers, by docs/spec/options.md#texts-of-values, #scheduler, #runtime, #program."""

import pytest

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.catalogue import OPTIONS, option_named
from penstock.engine.model.options.checkpoints import CheckpointOptions, StateBackendOptions
from penstock.engine.model.options.cluster import HeartbeatOptions, TaskManagerOptions
from penstock.engine.model.options.option import parse_duration_ms, parse_memory_bytes
from penstock.engine.model.options.program import PipelineOptions
from penstock.engine.model.options.reporters import ReporterOptions
from penstock.engine.model.options.scheduling import SchedulingOptions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5 min", 300_000), ("200 ms", 200), ("7", 7), ("1 h", 3_600_000), ("2 days", 172_800_000),
        ("50 s", 50_000), ("3 seconds", 3000), ("500 us", 0), ("1min", 60_000),
    ],
)  # fmt: skip
def test_durations_are_read_as_flink_reads_them(text: str, expected: int) -> None:
    assert parse_duration_ms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("64 mb", 64 << 20), ("32kb", 32 << 10), ("1g", 1 << 30), ("4096", 4096), ("256 bytes", 256)],
)
def test_sizes_are_read_as_flink_reads_them(text: str, expected: int) -> None:
    assert parse_memory_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "five", "5 parsecs", "-1 s", "1.5 s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="200 ms"):
        parse_duration_ms(text)


def test_every_default_can_be_read() -> None:
    given = [option for option in OPTIONS.values() if option.default is not None]
    assert len(given) > len(OPTIONS) // 2
    assert all(option.parse(option.default) is not None for option in given)


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("slot.request.timeout", 300_000),
        ("slot.idle.timeout", 50_000),
        ("jobmanager.execution.attempts-history-size", 16),
        ("restart-strategy.exponential-delay.jitter-factor", 0.1),
        ("restart-strategy.fixed-delay.attempts", 1),
        ("task.cancellation.timers.timeout", 7500),
        ("slotmanager.number-of-slots.max", 2**31 - 1),
        ("heartbeat.timeout", 50_000),
        ("taskmanager.memory.segment-size", 32 << 10),
        ("execution.buffer-timeout.interval", 100),
        ("penstock.task.max-step-time", 5),
        ("penstock.exchange.frame-size", 1 << 20),
    ],
)
def test_defaults_of_the_spec(key: str, default: object) -> None:
    assert Settings().get(option_named(key)) == default


def test_the_program_wins_over_the_command_line_over_spark_over_the_host() -> None:
    interval = HeartbeatOptions.INTERVAL
    key = interval.key
    spark = {"spark.penstock.heartbeat.interval": "3 s", "spark.app.name": "x"}
    settings = Settings({key: "1 s"}, {key: "2 s"}, spark, {key: "4 s"})
    assert settings.get(interval) == 1000
    assert Settings({}, {key: "2 s"}, spark, {key: "4 s"}).get(interval) == 2000
    assert Settings({}, {}, spark, {key: "4 s"}).get(interval) == 3000
    assert Settings({}, {}, {}, {key: "4 s"}).get(interval) == 4000
    assert Settings().get(interval) == 10_000


def test_penstock_keys_are_found_in_spark_with_one_prefix() -> None:
    settings = Settings(spark={"spark.penstock.taskmanager.max": "2"})
    assert settings.get(TaskManagerOptions.MAX_TASKMANAGERS) == 2


def test_a_key_with_a_name_of_the_users_is_read_checked_and_found_in_spark() -> None:
    option = ReporterOptions.INTERVAL.of("x")
    assert Settings({"metrics.reporter.x.interval": "3 s"}).get(option) == 3000
    spark = Settings(spark={"spark.penstock.metrics.reporter.x.interval": "4 s"})
    assert spark.get(option) == 4000
    assert spark.ignored_keys() == []
    assert Settings({}).get(option) == 10_000
    with pytest.raises(ConfigurationError, match=r"metrics\.reporter\.x\.interval.*soon"):
        Settings({"metrics.reporter.x.interval": "soon"})


def test_texts_between_semicolons_keep_their_commas() -> None:
    option = ReporterOptions.INCLUDES.of("x")
    for given in ("a:b,c; d", "[a:b,c;d]", ["a:b,c", "d"]):
        assert Settings({option.key: given}).get(option) == ["a:b,c", "d"]


def test_an_unknown_penstock_key_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigurationError, match=r"penstock\.taskmanager\.max"):
        Settings({"penstock.taskmanager.maxx": "2"})


def test_an_unknown_key_is_refused_where_an_option_is_looked_for() -> None:
    with pytest.raises(ConfigurationError, match=r"Did you mean 'heartbeat\.interval'"):
        option_named("heartbeat.intervall")


def test_an_old_name_sets_its_option_where_the_present_name_is_not_set() -> None:
    kind = StateBackendOptions.TYPE
    assert Settings({"state.backend": "rocksdb"}).get(kind) == "rocksdb"
    assert Settings({"state.backend": "rocksdb", kind.key: "hashmap"}).get(kind) == "hashmap"


def test_keys_that_change_nothing_are_listed() -> None:
    settings = Settings({"python.profile.enabled": "true", "slot.idle.timeout": 7, "mine": "x"})
    assert settings.ignored_keys() == ["mine", "python.profile.enabled"]


def test_a_wrong_value_is_refused_with_its_key() -> None:
    with pytest.raises(ConfigurationError, match=r"taskmanager\.numberOfTaskSlots"):
        Settings({"taskmanager.numberOfTaskSlots": "many"})
    with pytest.raises(ConfigurationError, match="true or false"):
        Settings({"pipeline.operator-chaining.enabled": "yes"})


def test_an_older_option_counts_where_only_that_is_set() -> None:
    settings = Settings({"state.checkpoints.dir": "/older"})
    assert (settings.get(CheckpointOptions.DIR), settings.is_set(CheckpointOptions.DIR)) == (
        "/older",
        True,
    )
    assert settings.chosen(CheckpointOptions.DIR).key == "state.checkpoints.dir"
    both = Settings({"state.checkpoints.dir": "/older", "execution.checkpointing.dir": "/new"})
    assert both.get(CheckpointOptions.DIR) == "/new"
    assert both.chosen(CheckpointOptions.DIR) == CheckpointOptions.DIR
    assert not Settings().is_set(CheckpointOptions.DIR)


def test_lists_and_maps() -> None:
    settings = Settings({"pipeline.jars": "a;b", "pipeline.global-job-parameters": "k:1,l:x"})
    assert settings.get(option_named("pipeline.jars")) == ["a", "b"]
    assert settings.get(PipelineOptions.GLOBAL_JOB_PARAMETERS) == {"k": "1", "l": "x"}
    assert Settings({"pipeline.global-job-parameters": {"k": "1"}}).get(
        PipelineOptions.GLOBAL_JOB_PARAMETERS
    ) == {"k": "1"}


def test_what_was_set_can_be_read_again_elsewhere() -> None:
    first = Settings(
        {"parallelism.default": 3},
        command_line={"parallelism.default": "4", "python.files": "a.py"},
        spark={"spark.penstock.slot.idle.timeout": "7 s", "spark.master": "local"},
        defaults={"heartbeat.interval": "500 ms", "slot.idle.timeout": "1 s"},
    )
    texts = first.as_text()
    assert texts == {
        "parallelism.default": "3",
        "python.files": "a.py",
        "slot.idle.timeout": "7 s",
    }
    assert Settings(texts).get(SchedulingOptions.SLOT_IDLE_TIMEOUT) == 7000
