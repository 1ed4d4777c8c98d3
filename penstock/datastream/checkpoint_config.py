"""CheckpointConfig: what a program sets about checkpoints, stored as configuration keys.

Source: pyflink.datastream.checkpoint_config; differs: it is a view of one Configuration. Intervals are milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.common.absent import absent, gone
from penstock.common.configuration import Configuration
from penstock.common.time import Duration
from penstock.connectors.former_names import OF_CHECKPOINT_CONFIG, OF_THE_PACKAGE
from penstock.datastream.checkpoint_storage import CheckpointStorage, FileSystemCheckpointStorage
from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from penstock.engine.model.options.checkpoints import CheckpointOptions
from penstock.engine.model.options.option import Option
from penstock.engine.model.setting_checks import check_kind, check_whole
from penstock.engine.model.time import millis_of

LEAST_MS: Final = 10
"""What Flink allows for the interval and the timeout."""
_FORMER: Final = "ExternalizedCheckpointCleanup"


class CheckpointConfig:
    """Holds the checkpoint settings of an environment, as `env.get_checkpoint_config()` returns it.

    Setters return the config, and raise ConfigurationError for a value out of range.
    """

    DEFAULT_TIMEOUT: Final = 600_000
    DEFAULT_MIN_PAUSE_BETWEEN_CHECKPOINTS: Final = 0
    DEFAULT_MAX_CONCURRENT_CHECKPOINTS: Final = 1
    if not TYPE_CHECKING:  # with it a type checker would accept any name
        __getattr__ = gone(OF_CHECKPOINT_CONFIG)

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._storage: CheckpointStorage | None = None

    def is_checkpointing_enabled(self) -> bool:
        """Return whether there are checkpoints: their interval is set."""
        return self.get_checkpoint_interval() > 0

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the mode; without checkpoints it is AT_LEAST_ONCE."""
        if not self.is_checkpointing_enabled():
            return CheckpointingMode.AT_LEAST_ONCE
        return CheckpointingMode[self._text(CheckpointOptions.MODE, "EXACTLY_ONCE")]

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Set EXACTLY_ONCE (default) or AT_LEAST_ONCE."""
        mode = check_kind(
            "set_checkpointing_mode",
            checkpointing_mode,
            CheckpointingMode,
            "CheckpointingMode.EXACTLY_ONCE",
        )
        return self._set(CheckpointOptions.MODE, mode.name)

    def get_checkpoint_interval(self) -> int:
        """Return the time between the starts of two checkpoints in ms; -1: there are none."""
        return self._ms(CheckpointOptions.INTERVAL, -1)

    def set_checkpoint_interval(self, checkpoint_interval: int) -> CheckpointConfig:
        """Set the time between the starts of two checkpoints in ms."""
        check_whole("checkpoint interval", checkpoint_interval, LEAST_MS, "ms")
        return self._set(CheckpointOptions.INTERVAL, f"{checkpoint_interval} ms")

    def get_checkpoint_timeout(self) -> int:
        """Return after how many ms a checkpoint that is not complete is aborted (default 600000)."""
        return self._ms(CheckpointOptions.TIMEOUT, self.DEFAULT_TIMEOUT)

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> CheckpointConfig:
        """Set the time in ms after which a checkpoint that is not complete is aborted."""
        check_whole("checkpoint timeout", checkpoint_timeout, LEAST_MS, "ms")
        return self._set(CheckpointOptions.TIMEOUT, f"{checkpoint_timeout} ms")

    def get_min_pause_between_checkpoints(self) -> int:
        """Return the shortest time in ms from the end of a checkpoint to the start of the next (default 0)."""
        return self._ms(CheckpointOptions.MIN_PAUSE, self.DEFAULT_MIN_PAUSE_BETWEEN_CHECKPOINTS)

    def set_min_pause_between_checkpoints(
        self, min_pause_between_checkpoints: int
    ) -> CheckpointConfig:
        """Set the shortest time in ms from the end of a checkpoint to the start of the next."""
        check_whole("pause between checkpoints", min_pause_between_checkpoints, 0, "ms")
        return self._set(CheckpointOptions.MIN_PAUSE, f"{min_pause_between_checkpoints} ms")

    def get_max_concurrent_checkpoints(self) -> int:
        """Return how many checkpoints may be in progress at once (default 1)."""
        return self._number(
            CheckpointOptions.MAX_CONCURRENT, self.DEFAULT_MAX_CONCURRENT_CHECKPOINTS
        )

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Set how many checkpoints may be in progress at once."""
        check_whole("number of concurrent checkpoints", max_concurrent_checkpoints, 1)
        return self._set(CheckpointOptions.MAX_CONCURRENT, str(max_concurrent_checkpoints))

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Return whether the first failed checkpoint fails the job; True by default."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_fail_on_checkpointing_errors(
        self, fail_on_checkpointing_errors: bool
    ) -> CheckpointConfig:
        """Set whether the first failed checkpoint fails the job."""
        tolerable = 0 if fail_on_checkpointing_errors else 2**31 - 1
        return self.set_tolerable_checkpoint_failure_number(tolerable)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """Return how many checkpoints in a row may fail before the job does (default 0)."""
        return self._number(CheckpointOptions.TOLERABLE_FAILURES, 0)

    def set_tolerable_checkpoint_failure_number(
        self, tolerable_checkpoint_failure_number: int
    ) -> CheckpointConfig:
        """Set how many checkpoints in a row may fail before the job does."""
        check_whole("number of tolerable failures", tolerable_checkpoint_failure_number, 0)
        return self._set(
            CheckpointOptions.TOLERABLE_FAILURES, str(tolerable_checkpoint_failure_number)
        )

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Set whether checkpoints are kept when the job is cancelled."""
        mode = check_kind(
            "set_externalized_checkpoint_retention",
            retention_mode,
            ExternalizedCheckpointRetention,
            "ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION",
        )
        return self._set(CheckpointOptions.RETENTION, mode.name)

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Return whether checkpoints can outlive the job."""
        retention = self.get_externalized_checkpoint_retention()
        return retention is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """Return whether checkpoints are kept when the job is cancelled; by default they are not."""
        text = self._text(CheckpointOptions.RETENTION, "NO_EXTERNALIZED_CHECKPOINTS")
        return ExternalizedCheckpointRetention[text]

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return whether barriers may overtake data; False by default."""
        return self._flag(CheckpointOptions.UNALIGNED_ENABLED)

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Let barriers overtake data, so that checkpoints complete under back pressure."""
        return self._set(CheckpointOptions.UNALIGNED_ENABLED, "true" if enabled else "false")

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Keep barriers in line with data (default)."""
        return self.enable_unaligned_checkpoints(enabled=False)

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Duration) -> CheckpointConfig:
        """Set the time after which a checkpoint becomes unaligned, if unaligned ones are enabled.

        0: checkpoints are unaligned from the start.
        """
        return self._set(
            CheckpointOptions.ALIGNED_CHECKPOINT_TIMEOUT, f"{millis_of(alignment_timeout)} ms"
        )

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """Return the time after which a checkpoint becomes unaligned; 0 (default): from the start, if unaligned ones are enabled."""
        return Duration.of_millis(self._ms(CheckpointOptions.ALIGNED_CHECKPOINT_TIMEOUT, 0))

    def set_alignment_timeout(self, alignment_timeout: Duration) -> CheckpointConfig:
        """Do the same as `set_aligned_checkpoint_timeout`, under its former name."""
        return self.set_aligned_checkpoint_timeout(alignment_timeout)

    def get_alignment_timeout(self) -> Duration:
        """Do the same as `get_aligned_checkpoint_timeout`, under its former name."""
        return self.get_aligned_checkpoint_timeout()

    def set_force_unaligned_checkpoints(
        self, force_unaligned_checkpoints: bool = True
    ) -> CheckpointConfig:
        """Accept the setting, and ignore it."""
        return self._set(
            CheckpointOptions.UNALIGNED_FORCED, "true" if force_unaligned_checkpoints else "false"
        )

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return what was set; False by default. It has no effect."""
        return self._flag(CheckpointOptions.UNALIGNED_FORCED)

    def set_checkpoint_storage(self, storage: CheckpointStorage) -> CheckpointConfig:
        """Set the options of a storage such as FileSystemCheckpointStorage(path). As in PyFlink 1.

        Raises:
            ConfigurationError: the storage has a setting that does not exist here.
        """
        example = "FileSystemCheckpointStorage('file:///checkpoints')"
        check_kind("set_checkpoint_storage", storage, CheckpointStorage, example)
        storage.configure(self._configuration)
        self._storage = storage
        return self

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> CheckpointConfig:
        """Set the directory of checkpoints (`execution.checkpointing.dir`). As in PyFlink 1."""
        return self.set_checkpoint_storage(FileSystemCheckpointStorage(checkpoint_path))

    def get_checkpoint_storage(self) -> CheckpointStorage | None:
        """Return what `set_checkpoint_storage` has set; None: nothing."""
        return self._storage

    def _set(self, option: Option[Any], value: str) -> CheckpointConfig:
        self._configuration.set_string(option.key, value)
        return self

    def _text(self, option: Option[Any], default: str) -> str:
        return self._configuration.get_string(option.key, default)

    def _number(self, option: Option[Any], default: int) -> int:
        return self._configuration.get_integer(option.key, default)

    def _flag(self, option: Option[Any]) -> bool:
        return self._configuration.get_boolean(option.key, default_value=False)

    def _ms(self, option: Option[Any], default: int) -> int:
        return self._configuration.get_duration_ms(option.key, default)


__getattr__ = absent(__name__, {_FORMER: OF_THE_PACKAGE[_FORMER]})
