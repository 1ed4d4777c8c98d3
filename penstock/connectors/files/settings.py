"""Settings of a FileSink: names of its files, when a file is closed, and what its builder collected.

Source: Flink OutputFileConfig, RollingPolicy, DefaultRollingPolicy, OnCheckpointRollingPolicy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from penstock.common.serialization import BulkWriterFactory, Encoder
from penstock.connectors.api.builder import SettingsBuilder
from penstock.connectors.files.buckets import BucketAssigner
from penstock.connectors.files.compaction import FileCompactor, FileCompactStrategy
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.setting_checks import check_whole

DEFAULT_PART_BYTES: Final = 128 * 1024 * 1024
DEFAULT_INTERVAL_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class OutputFileConfig:
    """Sets the names of finished files: `<prefix>-<unique>-<n><suffix>`."""

    part_prefix: str = "part"
    part_suffix: str = ""

    def get_part_prefix(self) -> str:
        """Return what the names of files begin with; `part` by default."""
        return self.part_prefix

    def get_part_suffix(self) -> str:
        """Return what the names of files end with; empty by default."""
        return self.part_suffix

    @staticmethod
    def builder() -> OutputFileConfig.OutputFileConfigBuilder:
        """Return a builder."""
        return OutputFileConfig.OutputFileConfigBuilder()

    class OutputFileConfigBuilder(SettingsBuilder):
        """Builds an OutputFileConfig."""

        def __init__(self) -> None:
            super().__init__(OutputFileConfig())

        def with_part_prefix(self, prefix: str) -> Self:
            return self._with(part_prefix=_file_name(prefix, "prefix"))

        def with_part_suffix(self, suffix: str) -> Self:
            return self._with(part_suffix=_file_name(suffix, "suffix"))

        def build(self) -> OutputFileConfig:
            config: OutputFileConfig = self.settings
            return config


@dataclass(frozen=True, slots=True)
class RollingPolicy:
    """Sets when a part file is closed and another one started; 0 switches a condition off."""

    part_bytes: int = 0
    rollover_ms: int = 0
    inactivity_ms: int = 0

    @staticmethod
    def default_rolling_policy(
        part_size: int = DEFAULT_PART_BYTES,
        rollover_interval: int = DEFAULT_INTERVAL_MS,
        inactivity_interval: int = DEFAULT_INTERVAL_MS,
    ) -> DefaultRollingPolicy:
        """Return a policy that rolls by size, age and inactivity, checked when records arrive.

        Args:
            part_size: the largest size of a file in bytes.
            rollover_interval: the greatest age of a file in ms.
            inactivity_interval: the longest time without a record in ms.
        """
        check_whole("part_size", part_size, 1, "bytes")
        check_whole("rollover_interval", rollover_interval, 1, "ms")
        check_whole("inactivity_interval", inactivity_interval, 1, "ms")
        return DefaultRollingPolicy(part_size, rollover_interval, inactivity_interval)

    @staticmethod
    def on_checkpoint_rolling_policy() -> OnCheckpointRollingPolicy:
        """Return a policy with one file per subtask and bucket for each checkpoint."""
        return OnCheckpointRollingPolicy()

    def wants_roll(self, size: int, age_ms: float, idle_ms: float) -> bool:
        """Whether a part of `size` bytes is closed that began `age_ms` ago and was last written `idle_ms` ago."""
        return bool(
            (self.part_bytes and size >= self.part_bytes)
            or (self.rollover_ms and age_ms >= self.rollover_ms)
            or (self.inactivity_ms and idle_ms >= self.inactivity_ms)
        )


class DefaultRollingPolicy(RollingPolicy):
    """Rolls by size, age and inactivity; see `RollingPolicy.default_rolling_policy`."""

    __slots__ = ()


class OnCheckpointRollingPolicy(RollingPolicy):
    """Rolls at each checkpoint; see `RollingPolicy.on_checkpoint_rolling_policy`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _SinkSettings:
    """The settings that the builder collected. Exactly one of `encoder` and `bulk` is set."""

    base_path: str
    encoder: Encoder | None
    bulk: BulkWriterFactory | None
    token: str
    buckets: BucketAssigner
    rolling: RollingPolicy
    names: OutputFileConfig
    compaction: tuple[FileCompactStrategy, FileCompactor] | None = None


def _file_name(text: str, what: str) -> str:
    if "/" in text or "\0" in text:
        raise ConfigurationError(f"part {what} {text!r} must not contain '/' or a zero byte.")
    return text
