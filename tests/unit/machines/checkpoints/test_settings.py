"""Options of checkpoints. Expectations: spec/flink-runtime.md 10.1, 10.2, 12."""

import pytest

from penstock.machines.checkpoints.settings import (
    CheckpointSettings,
    Retention,
    checkpoint_settings_of,
)
from penstock.model.config import Settings
from penstock.model.errors import ConfigurationError

PREFIX = "execution.checkpointing."


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
        ({"mode": "AT_MOST_ONCE"}, "EXACTLY_ONCE or AT_LEAST_ONCE"),
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
