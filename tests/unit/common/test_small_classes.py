"""pyflink.common's small classes."""

from concurrent.futures import CancelledError
from datetime import timedelta

import pytest

from penstock.common import (
    ByteArraySchema,
    CompletableFuture,
    ConfigOptions,
    Configuration,
    Duration,
    Encoder,
    ExecutionConfig,
    Instant,
    JobStatus,
    RestartStrategies,
    Row,
    SimpleStringSchema,
    Time,
    Types,
)
from penstock.common.serialization import RowFieldExtractorSchema
from penstock.engine.model import states
from penstock.engine.model.errors import ConfigurationError


def test_times_convert():
    assert Duration.of_days(1) == Duration.of_hours(24) == Duration.of_minutes(1440)
    assert Duration.of_seconds(1) == Duration.of_millis(1000) == Duration.of_nanos(10**9)
    assert Time.seconds(2).to_milliseconds() == Time.milliseconds(2000).to_milliseconds() == 2000
    assert Time.days(1) == Time.hours(24) == Time.minutes(1440)
    assert Instant.of_epoch_milli(-1).to_epoch_milli() == -1
    assert Instant.of_epoch_milli(1500) == Instant(1, 500_000_000)


def test_a_configuration_stores_text_and_parses_it_when_asked():
    conf = Configuration.from_dict({"a": "1", "b": "true", "c": "1.5", "list": "x;y"})
    assert (conf.get_integer("a", 0), conf.get_integer("z", 7)) == (1, 7)
    assert conf.get_boolean("b", False) and conf.get_float("c", 0.0) == pytest.approx(1.5)
    conf.set_boolean("d", False).set_integer("e", 2).set_float("f", 0.5).set_string("g", "h")
    assert conf.to_dict()["d"] == "false"
    assert conf.set_bytearray("raw", bytearray(b"\x00\xff")).get_bytearray("raw", bytearray()) == (
        bytearray(b"\x00\xff")
    )
    assert conf.contains_key("g") and conf.remove_config("g") and not conf.remove_config("g")
    target = {}
    conf.add_all_to_dict(target)
    assert (target["d"], target["e"], target["a"]) == (False, 2, "1") and set(
        target
    ) == conf.key_set()
    assert Configuration().add_all(conf, "p.").get_string("p.a", "") == "1"
    assert Configuration.parse_list_value("x;y") == Configuration.parse_list_value("[x, 'y']")
    assert Configuration({"a": "1"}) == Configuration({"a": "1"})


@pytest.mark.parametrize(
    ("getter", "expected"),
    [("get_integer", "whole number"), ("get_boolean", "true or false"), ("get_float", "a number")],
)
def test_a_value_that_does_not_parse_names_the_key(getter, expected):
    with pytest.raises(
        ConfigurationError, match=rf"option 'key': got 'x y', expected {expected}|{expected}"
    ):
        getattr(Configuration({"key": "x y"}), getter)("key", 0)


def test_durations_in_the_configuration_are_flinks_text():
    conf = Configuration({"a": "5 min", "b": "200 ms", "c": "300"})
    assert [conf.get_duration_ms(key, 0) for key in "abc"] == [300_000, 200, 300]
    assert conf.get_duration_ms("none", 7) == 7


def test_options_are_described_with_type_and_default():
    option = ConfigOptions.key("a.b").int_type().default_value(3)
    assert (option.key, option.value_type, option.default) == ("a.b", int, 3)
    assert ConfigOptions.key("c").string_type().no_default_value().default is None


def test_execution_config_is_a_view_of_the_configuration():
    conf = Configuration()
    config = ExecutionConfig(conf)
    config.set_parallelism(4).enable_object_reuse().set_task_cancellation_timeout(5)
    assert conf.get_integer("parallelism.default", 0) == 4
    assert config.is_object_reuse_enabled() and config.get_task_cancellation_timeout() == 5
    assert config.set_parallelism(-1).get_parallelism() == ExecutionConfig.PARALLELISM_DEFAULT
    assert config.is_closure_cleaner_enabled()
    assert not config.disable_closure_cleaner().is_closure_cleaner_enabled()
    assert config.disable_generic_types().has_generic_types_disabled()
    with pytest.raises(ConfigurationError, match="at least 0 ms"):
        config.set_auto_watermark_interval(-1)


def test_restart_strategies_tell_what_they_were_made_of():
    fixed = RestartStrategies.fixed_delay_restart(3, 1500)
    assert fixed.get_restart_attempts() == 3
    assert fixed.get_delay_between_attempts_interval() == timedelta(seconds=1.5)
    rate = RestartStrategies.failure_rate_restart(2, 1000, 10)
    assert (rate.get_max_failure_rate(), rate.get_failure_interval()) == (2, timedelta(seconds=1))
    with pytest.raises(ConfigurationError, match="restart_attempts"):
        RestartStrategies.fixed_delay_restart(-1, 0)


def test_job_status_has_pyflinks_names_and_flinks_terminal_states():
    terminal = {s for s in JobStatus if s.is_globally_terminal_state()}
    assert terminal == {JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED}
    assert {s for s in JobStatus if s.is_terminal_state()} == terminal | {JobStatus.SUSPENDED}
    assert JobStatus.of(states.JobStatus.INITIALIZING) is JobStatus.CREATED
    assert JobStatus.of(states.JobStatus.RESTARTING) is JobStatus.RESTARTING


def test_a_future_waits_only_for_result_and_exception():
    asked = []

    def fetch(timeout_s):
        asked.append(timeout_s)
        if timeout_s is not None:
            raise TimeoutError
        return 5

    future = CompletableFuture(fetch)
    assert not future.done()
    assert (future.result(), future.done(), future.exception()) == (5, True, None)
    assert asked == [0.0, None]
    assert not future.cancel()
    waiting = CompletableFuture(fetch)
    assert waiting.cancel() and waiting.cancelled() and waiting.done()
    with pytest.raises(CancelledError):
        waiting.result()
    failed = CompletableFuture(lambda timeout_s: 1 / 0)
    assert isinstance(failed.exception(), ZeroDivisionError)


def test_schemas_and_encoders_give_bytes():
    schema = SimpleStringSchema()
    assert schema.deserialize(schema.serialize("ä")) == "ä"
    assert ByteArraySchema().deserialize(b"x") == b"x"
    assert RowFieldExtractorSchema(1).serialize(Row(1, b"x")) == b"x"
    pairs = Types.TUPLE([Types.STRING(), Types.INT()])
    assert Encoder.simple_string_encoder().encode([("a", 1), ("b", 2)], pairs) == b"(a,1)\n(b,2)\n"
    assert Encoder.simple_string_encoder().encode([(1, "a"), None], None) == b"(1, 'a')\nNone\n"
    assert Encoder.of(lambda value: b"%d;" % value).encode([1, 2], None) == b"1;2;"
