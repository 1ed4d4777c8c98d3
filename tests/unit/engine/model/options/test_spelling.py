"""Keys that are no options: what they probably mean, and when that is an error."""

import pytest

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.catalogue import FLINK_NAMES, FORMER_KEYS, OPTIONS, nearest


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("execution.checkpointing.intervall", "execution.checkpointing.interval"),
        ("execution.checkpoint.interval", "execution.checkpointing.interval"),
        ("execution.checkpointing.Dir", "execution.checkpointing.dir"),
        ("restart-strategy.typ", "restart-strategy.type"),
        ("restart-stategy.fixed-delay.attempts", "restart-strategy.fixed-delay.attempts"),
        ("restart-strategy.fixed-delay.attempt", "restart-strategy.fixed-delay.attempts"),
        ("high-availabilty.type", "high-availability.type"),
        ("high-availability.storage-dir", "high-availability.storageDir"),
        ("state.backend.typ", "state.backend.type"),
        ("state.checkpoint.dir", "state.checkpoints.dir"),
        ("execution.state-recovery.paht", "execution.state-recovery.path"),
        ("checkpointing.interval", "execution.checkpointing.interval"),
        ("checkpoint.interval", "execution.checkpointing.interval"),
        ("EXECUTION.CHECKPOINTING.INTERVAL", "execution.checkpointing.interval"),
        ("execution_checkpointing_interval", "execution.checkpointing.interval"),
        ("RESTART_STRATEGY.TYPE", "restart-strategy.type"),
    ],
)
@pytest.mark.parametrize("layer", ["program", "command_line"])
def test_a_misspelt_option_that_keeps_data_safe_is_an_error_with_the_right_name(key, meant, layer):
    with pytest.raises(ConfigurationError, match=f"'{key}'. Did you mean '{meant}'"):
        Settings(**{layer: {key: "x"}})


def test_spark_may_misspell_it_too():
    with pytest.raises(
        ConfigurationError, match=r"Did you mean 'execution\.checkpointing\.interval'"
    ):
        Settings(spark={"spark.penstock.execution.checkpointing.intervall": "1 s"})


def test_an_unknown_name_in_such_a_family_is_an_error_though_it_is_like_none():
    with pytest.raises(ConfigurationError, match=r"configuration\.md.*Correct its name"):
        Settings({"restart-strategy.quickly-please": "yes"})


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("parallelism.defualt", "parallelism.default"),
        ("taskmanager.numberOfTaskSlot", "taskmanager.numberOfTaskSlots"),
        ("pipeline.object-reus", "pipeline.object-reuse"),
        ("runtime-mode", "execution.runtime-mode"),
        ("Parallelism.Default", "parallelism.default"),
    ],
)
def test_other_misspelt_options_are_told_with_the_right_name(key, meant):
    settings = Settings({key: "1"})
    assert settings.ignored_keys() == [key]
    assert settings.ignored_texts() == [f"{key} (did you mean '{meant}'?)"]


def test_keys_of_other_software_have_no_effect_and_no_advice():
    mine = {"my.application.input": "a", "fs.s3a.access.key": "b", "team": "c"}
    assert Settings(mine).ignored_texts() == sorted(mine)


def test_no_name_of_flinks_is_misspelt():
    settings = Settings(dict.fromkeys(FLINK_NAMES, "1"))
    assert settings.ignored_texts() == sorted(FLINK_NAMES)
    assert all(nearest(key) is None for key in (*OPTIONS, *FORMER_KEYS))


def test_the_names_are_no_options_here():
    assert not FLINK_NAMES & (OPTIONS.keys() | FORMER_KEYS.keys())
    assert not [name for name in FLINK_NAMES if not name or name != name.strip()]


def test_a_family_with_names_that_nobody_lists_here_is_left_alone():
    Settings({"state.backend.rocksdb.metrics.num-running-flushes": "true"})
    with pytest.raises(ConfigurationError, match="fixed-per-slot"):
        Settings({"state.backend.rocksdb.memory.fixed-per-slott": "1 mb"})
