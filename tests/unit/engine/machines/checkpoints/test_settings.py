"""Options of checkpoints. Expectations: docs/spec/checkpoints.md#coordinator, #barriers,
docs/spec/options.md#runtime.
"""

import pytest

from penstock.engine.machines.checkpoints.settings import (
    CheckpointPlaces,
    CheckpointSettings,
    checkpoint_places_of,
    checkpoint_settings_of,
)
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.checkpoints import Retention

PREFIX = "execution.checkpointing."
KEPT = 128 << 20
"""penstock.elastic.kept-state: 128 mb."""


def read(**options: str) -> CheckpointSettings:
    named = {PREFIX + key.replace("_", "-"): value for key, value in options.items()}
    return checkpoint_settings_of(Settings(named))


def test_the_defaults_are_flinks() -> None:
    assert read() == CheckpointSettings()


def test_options_are_read() -> None:
    found = checkpoint_settings_of(
        Settings({
            PREFIX + "interval": "10 s",
            PREFIX + "min-pause": "20 s",
            PREFIX + "unaligned.enabled": "true",
            PREFIX + "aligned-checkpoint-timeout": "3 s",
            PREFIX + "externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "execution.state-recovery.ignore-unclaimed-state": "true",
        })
    )
    assert (found.interval_ms, found.min_pause_ms) == (20_000, 20_000)
    assert found.aligned_timeout_ms == 3000
    assert found.retention is Retention.RETAIN_ON_CANCELLATION
    assert found.is_unclaimed_state_ignored


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"mode": "AT_MOST_ONCE"}, "EXACTLY_ONCE, AT_LEAST_ONCE"),
        ({"externalized_checkpoint_retention": "KEEP"}, "DELETE_ON_CANCELLATION"),
        ({"max_concurrent_checkpoints": "0"}, "at least 1"),
        ({"tolerable_failed_checkpoints": "-1"}, "at least 0"),
        ({"mode": "AT_LEAST_ONCE", "unaligned.enabled": "true"}, "exclude each other"),
        ({"max_concurrent_checkpoints": "2", "unaligned.enabled": "true"}, "got 2"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str], what: str) -> None:
    with pytest.raises(ConfigurationError, match=what):
        read(**options)


def test_an_interval_below_ten_milliseconds_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least 10 ms"):
        read(interval="9 ms")
    assert not read(interval="0 ms").is_periodic


def test_places_are_read_with_their_defaults() -> None:
    assert checkpoint_places_of(Settings({})) == CheckpointPlaces(
        None, None, 20 << 10, None, False, kept_bytes=KEPT
    )


def test_old_names_count_where_the_new_ones_are_not_set() -> None:
    old = {
        "state.checkpoints.dir": "/old",
        "state.savepoints.dir": "/saved",
        "state.checkpoints.num-retained": "3",
        "state.storage.fs.memory-threshold": "1 kb",
        "execution.savepoint.path": "/start",
        "execution.savepoint-restore-mode": "claim",
        "execution.savepoint.ignore-unclaimed-state": "true",
    }
    found = checkpoint_places_of(Settings(old))
    assert found == CheckpointPlaces("/old", "/saved", 1024, "/start", True, kept_bytes=KEPT)
    settings = checkpoint_settings_of(Settings(old))
    assert (settings.num_retained, settings.is_unclaimed_state_ignored) == (3, True)
    assert checkpoint_places_of(Settings(old | {PREFIX + "dir": "/new"})).directory == "/new"


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("execution.state-recovery.claim-mode", "LEGACY", "CLAIM, NO_CLAIM"),
        (PREFIX + "data-inline-threshold", "2 mb", "at most 1,048,576"),
    ],
)
def test_places_that_cannot_be_are_refused(key: str, value: str, what: str) -> None:
    with pytest.raises(ConfigurationError, match=what):
        checkpoint_places_of(Settings({key: value}))


def test_a_final_checkpoint_comes_only_where_others_come_after_the_end_of_tasks() -> None:
    assert read(interval="1 s").has_final_checkpoint
    assert not read().has_final_checkpoint
    assert not read(interval="1 s", checkpoints_after_tasks_finish="false").has_final_checkpoint
