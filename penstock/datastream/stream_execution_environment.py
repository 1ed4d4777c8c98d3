"""StreamExecutionEnvironment: where a program begins, with its settings.

Builds the graph and hands it to a JobExecutor, which it knows only by that port.
Source: pyflink.datastream.stream_execution_environment; differs: `set_restart_strategy` still exists, `use_executor` is
an addition; `plumbing` is for Penstock's own classes; jars are accepted and ignored.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar, Final

from penstock.common.absent import gone
from penstock.common.configuration import Configuration
from penstock.common.execution_config import ExecutionConfig, check_parallelism
from penstock.common.job_client import JobClient
from penstock.common.job_execution_result import DetachedJobExecutionResult, JobExecutionResult
from penstock.common.restart_strategy import RestartStrategyConfiguration, configure_restarts
from penstock.connectors.former_names import OF_THE_ENVIRONMENT
from penstock.datastream.building.environment_plumbing import (
    BUFFER_TIMEOUT_ENABLED_KEY,
    BUFFER_TIMEOUT_KEY,
    CHAINING_KEY,
    DEFAULT_JOB_NAME,
    NO_BUFFER_TIMEOUT,
    RUNTIME_MODE_KEY,
    EnvironmentPlumbing,
    buffer_timeout_ms,
    is_chaining_enabled,
    runtime_mode,
)
from penstock.datastream.building.plan_json import plan_json
from penstock.datastream.checkpoint_config import CheckpointConfig
from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.datastream.execution_mode import RuntimeExecutionMode
from penstock.datastream.slot_sharing_group import SlotSharingGroup
from penstock.datastream.state_backend import StateBackend
from penstock.datastream.stream_sources import StreamSources
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.checkpoints import CheckpointOptions
from penstock.engine.model.options.program import PipelineOptions, PythonOptions
from penstock.engine.model.program import JobExecutor
from penstock.engine.model.setting_checks import check_kind, check_whole

DIFFERENT_MAX_KEY: Final = PipelineOptions.CHAINING_ACROSS_MAX_PARALLELISM.key


class StreamExecutionEnvironment(StreamSources):
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
        self.plumbing = EnvironmentPlumbing(own, executor)
        self._configuration = own
        self._config = self.plumbing.config
        self._checkpoint_config = self.plumbing.checkpoint_config
        self._cached_files: list[tuple[str, str, bool]] = []
        runtime_mode(self._configuration)  # Raises for one that does not exist.
        self.plumbing.show_errors(self._configuration)

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
        """Return the settings of execution, such as parallelism and job parameters. Changes to it count."""
        return self._config

    def get_configuration(self) -> Configuration:
        """Return the keys that this program has set, by methods or by `configure`."""
        return self._configuration

    def configure(self, configuration: Configuration) -> None:
        """Add the keys of `configuration`; they replace those already set."""
        self._configuration.add_all(configuration)
        runtime_mode(self._configuration)  # Raises for one that does not exist.

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Set the default number of parallel subtasks of an operator.

        It holds for operators that are added from here on, and for earlier ones if none was set then.
        """
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
        """Return the number of key groups; -1: none is set, and each operator gets one that fits its parallelism."""
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
        runtime_mode(self._configuration)  # Raises for one that does not exist.
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
        return buffer_timeout_ms(self._configuration)

    def disable_operator_chaining(self) -> StreamExecutionEnvironment:
        """Run each operator as a task of its own."""
        self._configuration.set_boolean(CHAINING_KEY, value=False)
        return self

    def is_chaining_enabled(self) -> bool:
        """Return whether operators that follow each other may run as one task; True by default."""
        return is_chaining_enabled(self._configuration)

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """Return whether operators of different maximum parallelism may run as one task; True by default."""
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
        """Return the settings of checkpoints; a change counts for jobs that are submitted later."""
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
        """Return EXACTLY_ONCE or AT_LEAST_ONCE, as `CheckpointConfig.get_checkpointing_mode` does."""
        return self._checkpoint_config.get_checkpointing_mode()

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """Return the same as `get_checkpointing_mode`."""
        return self._checkpoint_config.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return whether barriers may overtake data; False by default."""
        return self._checkpoint_config.is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return what was set; False by default. It has no effect."""
        return self._checkpoint_config.is_force_unaligned_checkpoints()

    def set_state_backend(self, state_backend: StateBackend) -> StreamExecutionEnvironment:
        """Set the options of HashMapStateBackend() or EmbeddedRocksDBStateBackend(). As in PyFlink 1.

        Raises:
            ConfigurationError: the backend has a setting that does not exist here.
        """
        self.plumbing.use_state_backend(state_backend)
        return self

    def get_state_backend(self) -> StateBackend | None:
        """Return what `set_state_backend` has set; None: nothing."""
        return self.plumbing.state_backend

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
        """Return the directory of savepoints that are triggered without one; None: it is not set."""
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
        """Set the Python interpreter of the tasks, `python.executable`.

        The job is refused where Spark runs another one: with a local master that of the driver, on a cluster the one with which the
        SparkSession was made.
        """
        self._configuration.set_string(PythonOptions.EXECUTABLE.key, python_exec)

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> None:
        """Register a file under a name in the distributed cache."""
        self._cached_files.append((file_path, name, executable))

    def add_jars(self, *jars_path: str) -> None:
        """Accept jars, and ignore them: nothing here needs a jar."""

    def add_classpaths(self, *classpaths: str) -> None:
        """Accept classpaths, and ignore them: nothing here needs a jar."""

    # ---------------------------------------------------------- running

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the program and wait for its end; Ctrl-C cancels it.

        With `execution.attached` false, a job of a session is only submitted.

        Raises:
            JobExecutionError: the job has failed; the text has the traceback of the user's
                function.
        """
        client = self.execute_async(job_name)
        if not client.is_attached:
            return DetachedJobExecutionResult(client.get_job_id())
        return client.get_job_execution_result().result()

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


def _existing(path: str, method: str) -> str:
    if not os.path.exists(path):
        raise ConfigurationError(
            f"{method}: {path!r} does not exist, seen from {os.getcwd()}. Give a path on the "
            "machine that runs the program."
        )
    return path
