"""StreamExecutionEnvironment: where a program begins, with its settings.

Builds the graph and hands it to a JobExecutor, which it knows only by that port.
Source: pyflink.datastream.stream_execution_environment; differs: `set_restart_strategy` still exists, `use_executor` is
an addition; `plumbing` is for Penstock's own classes; jars are accepted and ignored.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, overload

from penstock.common.absent import gone
from penstock.common.configuration import Configuration
from penstock.common.execution_config import (
    ExecutionConfig,
    check_parallelism,
)
from penstock.common.io import InputFormat
from penstock.common.job_client import JobClient
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.restart_strategy import RestartStrategyConfiguration, configure_restarts
from penstock.common.setting_checks import check_kind, check_whole
from penstock.common.time import Duration
from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types
from penstock.common.types import Row
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.building.adapters import checked_type
from penstock.datastream.building.environment_plumbing import (
    BUFFER_TIMEOUT_ENABLED_KEY,
    BUFFER_TIMEOUT_KEY,
    CHAINING_KEY,
    DEFAULT_JOB_NAME,
    NO_BUFFER_TIMEOUT,
    RUNTIME_MODE_KEY,
    EnvironmentPlumbing,
)
from penstock.datastream.building.former_names import OF_THE_ENVIRONMENT
from penstock.datastream.building.plan_json import plan_json
from penstock.datastream.building.program import Upstream
from penstock.datastream.building.stream_plumbing import StreamPlumbing
from penstock.datastream.checkpoint_config import CheckpointConfig
from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.datastream.connectors.collection import CollectionSource
from penstock.datastream.connectors.files.source import FileSource
from penstock.datastream.connectors.socket_text import SocketTextSource
from penstock.datastream.data_stream import DataStream
from penstock.datastream.execution_mode import RuntimeExecutionMode
from penstock.datastream.executor import (
    JobExecutor,
)
from penstock.datastream.formats.file_format import FileInputFormat
from penstock.datastream.functions.type_variables import T
from penstock.datastream.slot_sharing_group import SlotSharingGroup
from penstock.model.errors import ConfigurationError, GraphError
from penstock.model.options.checkpoints import CheckpointOptions
from penstock.model.options.program import PipelineOptions, PythonOptions
from penstock.runtime.sources.contract import Boundedness, Source
from penstock.runtime.sources.operator import SourceOperator

DIFFERENT_MAX_KEY: Final = PipelineOptions.CHAINING_ACROSS_MAX_PARALLELISM.key


class StreamExecutionEnvironment:
    """Builds programs and runs them. `execute` runs what was added since the last `execute`.

    Args:
        configuration: Flink's configuration keys, such as `parallelism.default`.
        executor: runs the jobs; without it Spark does.
    """

    _local_parallelism: ClassVar[int | None] = None
    if not TYPE_CHECKING:  # with it a type checker would accept any name
        __getattr__ = gone(OF_THE_ENVIRONMENT)

    def __init__(
        self, configuration: Configuration | None = None, executor: JobExecutor | None = None
    ) -> None:
        own = Configuration()
        if configuration is not None:
            own.add_all(configuration)
        self.plumbing: Final = EnvironmentPlumbing(own, executor)
        self._configuration = own
        self._config = self.plumbing.config
        self._checkpoint_config = self.plumbing.checkpoint_config
        self._cached_files: list[tuple[str, str, bool]] = []
        self.plumbing.check_runtime_mode()

    @staticmethod
    def get_execution_environment(
        configuration: Configuration | None = None,
    ) -> StreamExecutionEnvironment:
        """Create an environment. Its jobs run on the Spark session of this process."""
        return StreamExecutionEnvironment(configuration)

    def use_executor(self, executor: JobExecutor) -> StreamExecutionEnvironment:
        """Run jobs on this executor, such as a MiniCluster, instead of on Spark. Not in PyFlink."""
        self.plumbing.use_executor(executor)
        return self

    # ---------------------------------------------------------- settings

    def get_config(self) -> ExecutionConfig:
        return self._config

    def get_configuration(self) -> Configuration:
        """Return the keys that this program has set, by methods or by `configure`."""
        return self._configuration

    def configure(self, configuration: Configuration) -> None:
        """Add the keys of `configuration`; they replace those already set."""
        self._configuration.add_all(configuration)
        self.plumbing.check_runtime_mode()

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Set the default number of parallel subtasks of an operator."""
        self._config.set_parallelism(parallelism)
        return self

    def get_parallelism(self) -> int:
        """Return the set parallelism, else the number of CPUs here; a cluster may differ."""
        configured = self._config.get_parallelism()
        return configured if configured > 0 else self.get_default_local_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """Set the number of key groups, which limits the parallelism, also after rescaling."""
        self._config.set_max_parallelism(max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        return self._config.get_max_parallelism()

    def get_default_local_parallelism(self) -> int:
        """Return the parallelism of environments that set none: by default the number of CPUs."""
        return self._local_parallelism or os.cpu_count() or 1

    def set_default_local_parallelism(self, parallelism: int) -> None:
        """Set the parallelism of environments, in this process, that set none."""
        check_parallelism(parallelism)
        type(self)._local_parallelism = parallelism  # ruff: ignore[private-member-access]

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """Choose STREAMING (default), BATCH, or AUTOMATIC: BATCH if all sources are bounded."""
        if not isinstance(execution_mode, RuntimeExecutionMode):
            raise TypeError(
                f"set_runtime_mode takes a RuntimeExecutionMode such as RuntimeExecutionMode.BATCH, got {execution_mode!r}."
            )
        self._configuration.set_string(RUNTIME_MODE_KEY, execution_mode.name)
        self.plumbing.check_runtime_mode()
        return self

    def set_buffer_timeout(self, timeout_millis: int) -> StreamExecutionEnvironment:
        """Set how long a record may wait for its buffer to fill, in ms; -1: without limit."""
        check_whole("buffer timeout (-1: none)", timeout_millis, NO_BUFFER_TIMEOUT, "ms")
        is_enabled = timeout_millis != NO_BUFFER_TIMEOUT
        self._configuration.set_boolean(BUFFER_TIMEOUT_ENABLED_KEY, is_enabled)
        if is_enabled:
            self._configuration.set_string(BUFFER_TIMEOUT_KEY, f"{timeout_millis} ms")
        return self

    def get_buffer_timeout(self) -> int:
        """Return how long a record may wait for its buffer to fill, in ms; -1: without limit."""
        return self.plumbing.buffer_timeout_ms

    def disable_operator_chaining(self) -> StreamExecutionEnvironment:
        """Run each operator as a task of its own."""
        self._configuration.set_boolean(CHAINING_KEY, value=False)
        return self

    def is_chaining_enabled(self) -> bool:
        return self.plumbing.is_chaining_enabled

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        return self._configuration.get_boolean(DIFFERENT_MAX_KEY, default_value=True)

    def register_slot_sharing_group(
        self, slot_sharing_group: SlotSharingGroup
    ) -> StreamExecutionEnvironment:
        """Make a slot sharing group, with its resources, known by its name."""
        group = check_kind(
            "register_slot_sharing_group",
            slot_sharing_group,
            SlotSharingGroup,
            "SlotSharingGroup.builder('large').build()",
        )
        self.plumbing.slot_sharing_groups[group.get_name()] = group
        return self

    def set_restart_strategy(
        self, restart_strategy_configuration: RestartStrategyConfiguration
    ) -> StreamExecutionEnvironment:
        """Set what happens when the job fails, as the `restart-strategy.*` keys do."""
        configure_restarts(self._configuration, restart_strategy_configuration)
        return self

    # ---------------------------------------------------------- checkpoints

    def get_checkpoint_config(self) -> CheckpointConfig:
        return self._checkpoint_config

    def enable_checkpointing(
        self, interval: int, mode: CheckpointingMode | None = None
    ) -> StreamExecutionEnvironment:
        """Take checkpoints; after a failure the job continues from the last one.

        `execution.checkpointing.dir` is their directory. It is not needed if driver and tasks run
        on one machine.

        Args:
            interval: ms between the starts of two checkpoints.
            mode: EXACTLY_ONCE (default) or AT_LEAST_ONCE.
        """
        self._checkpoint_config.set_checkpoint_interval(interval)
        if mode is not None:
            self._checkpoint_config.set_checkpointing_mode(mode)
        return self

    def get_checkpoint_interval(self) -> int:
        """Return the ms between the starts of two checkpoints; -1: there are none."""
        return self._checkpoint_config.get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        return self._checkpoint_config.get_checkpointing_mode()

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        return self._checkpoint_config.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        return self._checkpoint_config.is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        return self._checkpoint_config.is_force_unaligned_checkpoints()

    def enable_changelog_state_backend(self, enabled: bool) -> StreamExecutionEnvironment:
        """Turn the changelog of keyed state (`state.changelog.enabled`) on or off."""
        self._configuration.set_boolean("state.changelog.enabled", enabled)
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """Return whether the changelog is on; None: the program has not set it."""
        key = "state.changelog.enabled"
        if not self._configuration.contains_key(key):
            return None
        return self._configuration.get_boolean(key, default_value=False)

    def set_default_savepoint_directory(self, directory: str) -> StreamExecutionEnvironment:
        """Set the directory of savepoints that are triggered without one."""
        self._configuration.set_string(CheckpointOptions.SAVEPOINT_DIR.key, directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        return self._configuration.get_string(CheckpointOptions.SAVEPOINT_DIR.key, "") or None

    # ---------------------------------------------------------- files and packages for the tasks

    def add_python_file(self, file_path: str) -> None:
        """Ship a module, package or zip file that the program's functions import.

        Raises:
            ConfigurationError: the path does not exist on this machine.
        """
        self.plumbing.python_files.append(_existing(file_path, "add_python_file"))

    def set_python_requirements(
        self, requirements_file_path: str, requirements_cache_dir: str | None = None
    ) -> None:
        """Install the packages of a requirements file for the tasks.

        Args:
            requirements_file_path: the file, on this machine; a missing one is a
                ConfigurationError.
            requirements_cache_dir: a directory with the packages; without it they are downloaded.
        """
        path = _existing(requirements_file_path, "set_python_requirements")
        self.plumbing.python_requirements = (path, requirements_cache_dir)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Ship an archive, to unpack into `target_dir` (default: the archive's name).

        Raises:
            ConfigurationError: the archive does not exist on this machine.
        """
        path = _existing(archive_path, "add_python_archive")
        self.plumbing.python_archives.append((path, target_dir))

    def set_python_executable(self, python_exec: str) -> None:
        """Set the Python interpreter of the tasks."""
        self._configuration.set_string(PythonOptions.EXECUTABLE.key, python_exec)

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> None:
        """Register a file under a name in the distributed cache."""
        self._cached_files.append((file_path, name, executable))

    def add_jars(self, *jars_path: str) -> None:
        """Accept jars, and ignore them: nothing here needs a jar."""

    def add_classpaths(self, *classpaths: str) -> None:
        """Accept classpaths, and ignore them: nothing here needs a jar."""

    # ---------------------------------------------------------- sources

    @overload
    def from_collection(
        self, collection: Sequence[Any], type_info: RowTypeInfo
    ) -> DataStream[Row]: ...

    @overload
    def from_collection(
        self, collection: Sequence[T], type_info: TypeInformation | None = None
    ) -> DataStream[T]: ...

    def from_collection(
        self, collection: Sequence[Any], type_info: TypeInformation | None = None
    ) -> DataStream[Any]:
        """Create a bounded stream of the given values, with parallelism 1.

        With `type_info` each value is converted to that type here.
        """
        declared = checked_type(type_info, "from_collection", "type_info")
        source = CollectionSource.of(collection, declared)
        return self._source(source, None, "Collection Source", declared, parallelism=1)

    def from_source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy,
        source_name: str,
        type_info: TypeInformation | None = None,
    ) -> DataStream[Any]:
        """Create a stream that reads a source.

        Args:
            source: a Source of penstock.datastream.connectors, or of your own.
            watermark_strategy: `WatermarkStrategy.no_watermarks()` for none.
            source_name: the operator's name.
            type_info: the type of the records, if the source does not declare it.
        """
        if not isinstance(source, Source):
            raise TypeError(
                "from_source takes a Source of penstock.datastream.connectors, got "
                f"{type(source).__name__}."
            )
        if not isinstance(watermark_strategy, WatermarkStrategy):
            raise TypeError(
                "from_source takes a WatermarkStrategy as second argument, got "
                f"{type(watermark_strategy).__name__}; WatermarkStrategy.no_watermarks() for none."
            )
        return self._source(source, watermark_strategy, source_name, type_info)

    def from_spark(
        self,
        frame: Any,
        timestamp_column: str | None = None,
        watermark: WatermarkStrategy | Duration | None = None,
        source_name: str = "DataFrame",
    ) -> DataStream[Any]:
        """Create a stream of the rows of a bounded DataFrame. Not in PyFlink.

        Records are Rows with the DataFrame's column names; operators on columns make no Row.
        Partitions are read one after the other: a bound holds if later ones have no earlier times.

        Args:
            frame: the DataFrame; docs/guides/dataframes.md lists the column types.
            timestamp_column: the column with each record's event time: TIMESTAMP, TIMESTAMP_NTZ
                (as UTC), DATE or BIGINT (epoch ms).
            watermark: a strategy, or the Duration by which records are out of order at most. None:
                the only watermark is the last one, after all rows.
            source_name: the operator's name.

        Raises:
            GraphError: a column's type has no counterpart, or a Duration has no `timestamp_column`.
            TypeError: `frame` is not a DataFrame.
        """
        from penstock.hosting.dataframes.frames import frame_source

        source = frame_source(frame, timestamp_column)
        if isinstance(watermark, Duration):
            if timestamp_column is None:
                raise GraphError(
                    "from_spark: a watermark needs event times: name the timestamp_column, or "
                    "give a WatermarkStrategy with a timestamp assigner."
                )
            watermark = WatermarkStrategy.for_bounded_out_of_orderness(watermark)
        return self._source(source, watermark, source_name, None, takes_tuples=True)

    def socket_text_stream(self, host: str, port: int, delimiter: str = "\n") -> DataStream[str]:
        """Create a stream of the lines that a TCP server sends, until it closes; parallelism 1.

        Flink has this in its Java API only.
        """
        source = SocketTextSource(host, port, delimiter)
        return self._source(source, None, "Socket Stream", None, parallelism=1)

    def add_source(
        self,
        source_func: Any,
        source_name: str = "Custom Source",
        type_info: TypeInformation | None = None,
    ) -> DataStream[Any]:
        """Create a stream from a Source, without watermarks.

        There are no Java source functions here.
        """
        return self.from_source(
            source_func, WatermarkStrategy.no_watermarks(), source_name, type_info
        )

    def create_input(
        self, input_format: InputFormat, type_info: TypeInformation | None = None
    ) -> DataStream[Any]:
        """Create a stream from an InputFormat such as AvroInputFormat, without watermarks."""
        if not isinstance(input_format, InputFormat):
            raise TypeError(
                f"create_input takes an InputFormat such as AvroInputFormat, got {type(input_format).__name__}. Use "
                "env.from_source with FileSource or a subclass of penstock.datastream.connectors.Source."
            )
        return self.from_source(
            _source_of(input_format),
            WatermarkStrategy.no_watermarks(),
            "Custom File Source",
            type_info,
        )

    # ---------------------------------------------------------- running

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the program and wait for its end; Ctrl-C cancels it.

        Raises:
            JobExecutionError: the job has failed; the text has the traceback of the user's
                function.
        """
        return self.execute_async(job_name).get_job_execution_result().result()

    def execute_async(self, job_name: str | None = DEFAULT_JOB_NAME) -> JobClient:
        """Start the program, and return a JobClient for the running job."""
        return JobClient(self.plumbing.submit(None if job_name == DEFAULT_JOB_NAME else job_name))

    def get_execution_plan(self) -> str:
        """Return the program so far as JSON. It can still be executed afterwards."""
        graph = self.plumbing.stream_graph()
        return plan_json(graph, self.plumbing.program.is_sink, self.get_parallelism())

    def close(self) -> None:
        """Forget what was added and not executed, and delete the records of cached streams."""
        self.plumbing.close()

    # ---------------------------------------------------------- private

    def _source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy | None,
        name: str,
        type_info: TypeInformation | None,
        parallelism: int = -1,
        *,
        takes_tuples: bool = False,
    ) -> DataStream[Any]:
        element_type = checked_type(type_info, name, "type_info") or source.produced_type
        if element_type == Types.PICKLED_BYTE_ARRAY():
            element_type = None
        node = self.plumbing.program.add_source(
            name,
            SourceOperator(source, watermark_strategy or WatermarkStrategy.no_watermarks()),
            source,
            takes_tuples=takes_tuples,
            parallelism=parallelism if parallelism > 0 else source.default_parallelism or -1,
            is_parallelism_fixed=parallelism > 0,
            is_bounded=source.boundedness is Boundedness.BOUNDED,
            output_type=element_type,
            coordinator=source,
        )
        return DataStream(StreamPlumbing(self, (Upstream(node.node_id),), element_type))


def _source_of(input_format: InputFormat) -> Source:
    if isinstance(input_format, FileInputFormat):
        return FileSource.for_record_stream_format(
            input_format.file_format, input_format.path
        ).build()
    return input_format.create_source()


def _existing(path: str, method: str) -> str:
    if not os.path.exists(path):
        raise ConfigurationError(
            f"{method}: {path!r} does not exist, seen from {os.getcwd()}. Give a path on the "
            "machine that runs the program."
        )
    return path
