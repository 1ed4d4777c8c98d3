"""ExecutionConfig: an environment's switches. Does not know the graph.

Source: pyflink.common.execution_config; differs: settings of Java serializers are stored and returned, without effect.
It is a view of one Configuration: keys and setters always agree.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.common.configuration import Configuration
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.checkpoints import CheckpointOptions
from penstock.engine.model.options.program import PipelineOptions
from penstock.engine.model.options.scheduling import SchedulingOptions
from penstock.engine.model.options.task import MetricOptions, TaskOptions
from penstock.engine.model.setting_checks import check_kind, check_whole

PARALLELISM_KEY: Final = SchedulingOptions.DEFAULT_PARALLELISM.key
MAX_PARALLELISM_KEY: Final = PipelineOptions.MAX_PARALLELISM.key
WATERMARK_INTERVAL_KEY: Final = PipelineOptions.AUTO_WATERMARK_INTERVAL.key
LATENCY_INTERVAL_KEY: Final = MetricOptions.LATENCY_INTERVAL.key
CANCELLATION_INTERVAL_KEY: Final = TaskOptions.CANCELLATION_INTERVAL.key
CANCELLATION_TIMEOUT_KEY: Final = TaskOptions.CANCELLATION_TIMEOUT.key
MAX_MAX_PARALLELISM: Final = 32_768


class ExecutionConfig:
    """Holds the execution settings of an environment, as `env.get_config()` returns it.

    Setters return the config, and raise ConfigurationError for a value out of range.
    """

    PARALLELISM_DEFAULT: Final = -1
    PARALLELISM_UNKNOWN: Final = -2

    def __init__(self, configuration: Configuration | None = None) -> None:
        self._configuration = Configuration() if configuration is None else configuration
        self._job_parameters: dict[str, str] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecutionConfig) and self._settings() == other._settings()

    def __hash__(self) -> int:
        return hash(frozenset(self._settings().items()))

    def _settings(self) -> dict[str, str]:
        parameters = {f"parameter {key}": value for key, value in self._job_parameters.items()}
        return self._configuration.to_dict() | parameters

    # ---------------------------------------------------------- parallelism

    def get_parallelism(self) -> int:
        """Return the default parallelism; -1 if it is not set, so that the cluster decides."""
        return self._configuration.get_integer(PARALLELISM_KEY, self.PARALLELISM_DEFAULT)

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Set the default number of parallel subtasks of an operator."""
        if parallelism != self.PARALLELISM_DEFAULT:
            check_parallelism(parallelism)
            self._configuration.set_integer(PARALLELISM_KEY, parallelism)
        else:
            self._configuration.remove_config(PARALLELISM_KEY)
        return self

    def get_max_parallelism(self) -> int:
        """Return the maximum parallelism; -1 if it is not set."""
        return self._configuration.get_integer(MAX_PARALLELISM_KEY, -1)

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Set the maximum parallelism, which is the number of key groups: 1 to 32768."""
        check_max_parallelism(max_parallelism)
        self._configuration.set_integer(MAX_PARALLELISM_KEY, max_parallelism)
        return self

    # ---------------------------------------------------------- intervals, ms

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Set the time between two watermarks in ms (default 200)."""
        return self._set_ms(WATERMARK_INTERVAL_KEY, interval)

    def get_auto_watermark_interval(self) -> int:
        """Return the time between two watermarks in ms."""
        return self._get_ms(WATERMARK_INTERVAL_KEY, 200)

    def set_latency_tracking_interval(self, interval: int) -> ExecutionConfig:
        """Set the time between two latency markers in ms; 0 (default): none."""
        return self._set_ms(LATENCY_INTERVAL_KEY, interval)

    def get_latency_tracking_interval(self) -> int:
        """Return the time between two latency markers in ms; 0: there are none."""
        return self._get_ms(LATENCY_INTERVAL_KEY, 0)

    def set_task_cancellation_interval(self, interval: int) -> ExecutionConfig:
        """Set the time between two attempts to interrupt a cancelled task in ms (default 30000)."""
        return self._set_ms(CANCELLATION_INTERVAL_KEY, interval)

    def get_task_cancellation_interval(self) -> int:
        """Return the time between two attempts to interrupt a cancelled task in ms."""
        return self._get_ms(CANCELLATION_INTERVAL_KEY, 30_000)

    def set_task_cancellation_timeout(self, timeout: int) -> ExecutionConfig:
        """Set the time in ms after which a task that does not cancel is fatal (default 180000)."""
        return self._set_ms(CANCELLATION_TIMEOUT_KEY, timeout)

    def get_task_cancellation_timeout(self) -> int:
        """Return the time in ms after which a task that does not cancel is fatal."""
        return self._get_ms(CANCELLATION_TIMEOUT_KEY, 180_000)

    # ---------------------------------------------------------- job parameters

    def get_global_job_parameters(self) -> dict[str, str]:
        """Return the job parameters, which functions read from their RuntimeContext."""
        return dict(self._job_parameters)

    def set_global_job_parameters(
        self, global_job_parameters_dict: dict[str, Any]
    ) -> ExecutionConfig:
        """Set the job parameters, which functions read from their RuntimeContext."""
        given = check_kind(
            "set_global_job_parameters", global_job_parameters_dict, dict, "{'key': 'value'}"
        )
        self._job_parameters = {str(key): str(value) for key, value in given.items()}
        return self

    # ---------------------------------------------------------- stored, without effect

    def enable_closure_cleaner(self) -> ExecutionConfig:
        """Accept the setting, and ignore it: closures of Python functions are not cleaned."""
        return self._set_text(PipelineOptions.CLOSURE_CLEANER_LEVEL.key, "RECURSIVE")

    def disable_closure_cleaner(self) -> ExecutionConfig:
        """Accept the setting, and ignore it: closures of Python functions are not cleaned."""
        return self._set_text(PipelineOptions.CLOSURE_CLEANER_LEVEL.key, "NONE")

    def is_closure_cleaner_enabled(self) -> bool:
        """Return what was set; True by default. It has no effect."""
        level = self._configuration.get_string(
            PipelineOptions.CLOSURE_CLEANER_LEVEL.key, "RECURSIVE"
        )
        return level != "NONE"

    def enable_force_kryo(self) -> ExecutionConfig:
        """Accept the setting, and ignore it: there is no Kryo here."""
        return self._set_flag(PipelineOptions.FORCE_KRYO.key, value=True)

    def disable_force_kryo(self) -> ExecutionConfig:
        """Accept the setting, and ignore it: there is no Kryo here."""
        return self._set_flag(PipelineOptions.FORCE_KRYO.key, value=False)

    def is_force_kryo_enabled(self) -> bool:
        """Return what was set; False by default. It has no effect."""
        return self._flag(PipelineOptions.FORCE_KRYO.key, default=False)

    def enable_generic_types(self) -> ExecutionConfig:
        """Accept the setting, and ignore it: values without a type are pickled."""
        return self._set_flag(PipelineOptions.GENERIC_TYPES.key, value=True)

    def disable_generic_types(self) -> ExecutionConfig:
        """Accept the setting, and ignore it: values without a type are pickled."""
        return self._set_flag(PipelineOptions.GENERIC_TYPES.key, value=False)

    def has_generic_types_disabled(self) -> bool:
        """Return what was set; False by default. It has no effect."""
        return not self._flag(PipelineOptions.GENERIC_TYPES.key, default=True)

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Accept the setting, and ignore it: operators without a uid get one."""
        return self._set_flag(PipelineOptions.AUTO_GENERATE_UIDS.key, value=True)

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Accept the setting, and ignore it: operators without a uid get one."""
        return self._set_flag(PipelineOptions.AUTO_GENERATE_UIDS.key, value=False)

    def has_auto_generated_uids_enabled(self) -> bool:
        """Return what was set; True by default. It has no effect."""
        return self._flag(PipelineOptions.AUTO_GENERATE_UIDS.key, default=True)

    def enable_force_avro(self) -> ExecutionConfig:
        """Accept the setting, and ignore it: types choose their serializer."""
        return self._set_flag(PipelineOptions.FORCE_AVRO.key, value=True)

    def disable_force_avro(self) -> ExecutionConfig:
        """Accept the setting, and ignore it: types choose their serializer."""
        return self._set_flag(PipelineOptions.FORCE_AVRO.key, value=False)

    def is_force_avro_enabled(self) -> bool:
        """Return what was set; False by default. It has no effect."""
        return self._flag(PipelineOptions.FORCE_AVRO.key, default=False)

    def enable_object_reuse(self) -> ExecutionConfig:
        """Accept the setting, and ignore it: records that can change are copied when necessary."""
        return self._set_flag(PipelineOptions.OBJECT_REUSE.key, value=True)

    def disable_object_reuse(self) -> ExecutionConfig:
        """Accept the setting, and ignore it: records that can change are copied when necessary."""
        return self._set_flag(PipelineOptions.OBJECT_REUSE.key, value=False)

    def is_object_reuse_enabled(self) -> bool:
        """Return what was set; False by default. It has no effect."""
        return self._flag(PipelineOptions.OBJECT_REUSE.key, default=False)

    def get_default_kryo_serializer_classes(self) -> dict[str, str]:
        """Return an empty dict: there is no Kryo here."""
        return {}

    def get_registered_kryo_types(self) -> list[str]:
        """Return an empty list: there is no Kryo here."""
        return []

    def get_registered_pojo_types(self) -> list[str]:
        """Return an empty list: there are no Java classes here."""
        return []

    def is_use_snapshot_compression(self) -> bool:
        """Return what was set; False by default. It has no effect."""
        return self._flag(CheckpointOptions.SNAPSHOT_COMPRESSION.key, default=False)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        """Accept the setting, and ignore it: snapshots are written as they are."""
        key = CheckpointOptions.SNAPSHOT_COMPRESSION.key
        return self._set_flag(key, value=use_snapshot_compression)

    # ---------------------------------------------------------- private

    def _set_ms(self, key: str, value: int) -> ExecutionConfig:
        check_whole(f"option '{key}'", value, 0, "ms")
        return self._set_text(key, f"{value} ms")

    def _get_ms(self, key: str, default: int) -> int:
        return self._configuration.get_duration_ms(key, default)

    def _flag(self, key: str, *, default: bool) -> bool:
        return self._configuration.get_boolean(key, default)

    def _set_flag(self, key: str, *, value: bool) -> ExecutionConfig:
        self._configuration.set_boolean(key, value)
        return self

    def _set_text(self, key: str, value: str) -> ExecutionConfig:
        self._configuration.set_string(key, value)
        return self


def check_parallelism(parallelism: int) -> None:
    """Raise ConfigurationError unless it is a whole number of at least 1."""
    if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
        raise ConfigurationError(f"parallelism must be a whole number >= 1, got {parallelism!r}.")


def check_max_parallelism(max_parallelism: int) -> None:
    """Raise ConfigurationError unless it is in [1, 32768], the range of key groups."""
    is_whole = isinstance(max_parallelism, int) and not isinstance(max_parallelism, bool)
    if not is_whole or not 1 <= max_parallelism <= MAX_MAX_PARALLELISM:
        raise ConfigurationError(
            f"max parallelism must be a whole number in [1, {MAX_MAX_PARALLELISM}], "
            f"got {max_parallelism!r}."
        )
