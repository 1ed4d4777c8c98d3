"""The state of an environment that PyFlink's methods use: the program under construction, its settings, and its executor.

Does not know any stream, and knows executors only by their port.
Source: Flink StreamExecutionEnvironment.getStreamGraph and executeAsync.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.common.configuration import Configuration
from penstock.common.execution_config import MAX_PARALLELISM_KEY, PARALLELISM_KEY, ExecutionConfig
from penstock.common.uncaught import show_errors
from penstock.datastream.building.program import Cache, Program
from penstock.datastream.checkpoint_config import CheckpointConfig
from penstock.datastream.execution_mode import RuntimeExecutionMode
from penstock.datastream.slot_sharing_group import SlotSharingGroup, slot_size_of
from penstock.datastream.state_backend import StateBackend
from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.stream_graph import StreamGraph
from penstock.engine.model.options.option import refusal
from penstock.engine.model.options.program import ExecutionOptions, PipelineOptions
from penstock.engine.model.options.scheduling import ErrorOptions
from penstock.engine.model.program import FrameExecutor, JobControl, JobExecutor, ProgramSettings
from penstock.engine.model.setting_checks import check_kind

DEFAULT_JOB_NAME: Final = "Flink Streaming Job"
CHAINING_KEY: Final = PipelineOptions.CHAINING_ENABLED.key
BUFFER_TIMEOUT_KEY: Final = ExecutionOptions.BUFFER_TIMEOUT.key
BUFFER_TIMEOUT_ENABLED_KEY: Final = ExecutionOptions.BUFFER_TIMEOUT_ENABLED.key
RUNTIME_MODE_KEY: Final = ExecutionOptions.RUNTIME_MODE.key
NO_BUFFER_TIMEOUT: Final = -1


class EnvironmentPlumbing:
    """For Penstock's own classes and tests; programs use the methods of the environment."""

    def __init__(self, configuration: Configuration, executor: JobExecutor | None) -> None:
        self.configuration = configuration
        self.config = ExecutionConfig(configuration)
        self.checkpoint_config = CheckpointConfig(configuration)
        self.program = Program(self.config.get_parallelism)
        self.slot_sharing_groups: dict[str, SlotSharingGroup] = {}
        self.python_files: list[str] = []
        self.python_archives: list[tuple[str, str | None]] = []
        self.python_requirements: tuple[str, str | None] | None = None
        self.state_backend: StateBackend | None = None
        self._executor = executor

    @property
    def executor(self) -> JobExecutor:
        """Spark, unless the program has set another one."""
        from penstock.engine.hosting.taskmanager.task.held_off_gc import COLLECTOR_HELD_OFF

        with COLLECTOR_HELD_OFF:  # Modules are no garbage.
            from penstock.ops.operations import install

            install()
            if self._executor is None:
                from penstock.engine.hosting.program.spark_host import default_executor

                self._executor = default_executor(self.configuration.to_dict())
        return self._executor

    def use_state_backend(self, backend: StateBackend) -> None:
        """Sets the backend's options. Raises: TypeError, ConfigurationError: it cannot be used."""
        check_kind("set_state_backend", backend, StateBackend, "HashMapStateBackend()")
        backend.configure(self.configuration)
        self.state_backend = backend

    def use_executor(self, executor: JobExecutor) -> None:
        self._executor = executor

    @property
    def settings(self) -> ProgramSettings:
        """The settings that are submitted together with the graph."""
        return ProgramSettings(
            configuration=self.configuration.to_dict(),
            python_files=tuple(self.python_files),
            python_archives=tuple(self.python_archives),
            python_requirements=self.python_requirements,
            job_parameters=self.config.get_global_job_parameters(),
        )

    def stream_graph(
        self,
        job_name: str | None = None,
        program: Program | None = None,
        options: Configuration | None = None,
    ) -> StreamGraph:
        """Return the graph of the whole program, or of a part, `program`. `options`: of the job; None: those that the program sets."""
        given = self.configuration if options is None else options
        graph = (program or self.program).graph()
        graph.job_name = job_name or given.get_string(PipelineOptions.NAME.key, DEFAULT_JOB_NAME)
        graph.is_chaining_enabled = is_chaining_enabled(given)
        graph.max_parallelism = given.get_integer(MAX_PARALLELISM_KEY, -1)
        graph.buffer_timeout_ms = buffer_timeout_ms(given)
        configured = given.get_integer(PARALLELISM_KEY, -1)
        graph.default_parallelism = configured if configured > 0 else 1
        sizes = {name: slot_size_of(group) for name, group in self.slot_sharing_groups.items()}
        graph.slot_sizes = {name: size for name, size in sizes.items() if size}
        graph.is_batch = _is_batch(given, graph)
        return graph

    def submit(self, job_name: str | None = None) -> JobControl:
        """Checks the graph, starts the job, and forgets the pending operators.

        A refused program is forgotten as well. Otherwise every later run would be refused too. Flink keeps operators
        that it could not make a graph of.
        """
        try:
            opened = self._open_caches()
            control: JobControl = self.run_on(
                lambda host, graph: host.submit(graph, self.settings), job_name
            )
            for cache in opened:
                cache.computed_by(control)
            for reader in self.program.readers:
                reader(control)
            return control
        finally:
            self.program.clear()

    def show_errors(self, options: Configuration) -> None:
        """Errors that end the program are shown as these options say."""
        show_errors(is_full=options.get_boolean(ErrorOptions.FULL.key, default_value=False))

    def run_on(
        self,
        call: Callable[[JobExecutor, StreamGraph], Any],
        job_name: str | None = None,
        program: Program | None = None,
    ) -> Any:
        """Checks the graph of the whole program, or of a part, `program`, and hands it to the executor."""
        executor = self.executor
        options = Configuration.from_dict(dict(executor.options_of(self.settings)))
        self.show_errors(options)
        graph = self.stream_graph(job_name, program, options)
        self.program.validate(graph)
        return call(executor, graph)

    def close(self) -> None:
        """Forgets the operators that were not run, and the records of cached streams."""
        self.program.clear()
        for cache in self.program.caches.values():
            cache.invalidate()

    def _open_caches(self) -> list[Cache]:
        """The caches whose records the next job computes. Raises: GraphError: such a job is unbounded."""
        caches = self.program.caches
        if not caches:
            return []
        nodes = self.stream_graph().nodes
        wanted = [
            cache
            for node_id, cache in caches.items()
            if node_id in nodes and not nodes[node_id].is_source
        ]
        endless = [node.name for node in nodes.values() if node.is_source and not node.is_bounded]
        if wanted and endless:
            raise GraphError(
                f"cache() keeps the records of bounded streams, but the source {endless[0]!r} has "
                "no end. Make it bounded, or leave cache() out."
            )
        host = self.executor
        if not isinstance(host, FrameExecutor):  # such an executor only shows plans
            return []
        for cache in wanted:
            cache.open(host.results_folder(self.settings))
        return wanted


def is_chaining_enabled(options: Configuration) -> bool:
    return options.get_boolean(CHAINING_KEY, default_value=True)


def buffer_timeout_ms(options: Configuration) -> int:
    """The longest time in ms that a record waits in a buffer; -1: there is no such limit."""
    if not options.get_boolean(BUFFER_TIMEOUT_ENABLED_KEY, default_value=True):
        return NO_BUFFER_TIMEOUT
    return options.get_duration_ms(BUFFER_TIMEOUT_KEY, 100)


def runtime_mode(options: Configuration) -> RuntimeExecutionMode:
    """The runtime mode that is set. Raises: ConfigurationError: there is no such mode."""
    mode = options.get_string(RUNTIME_MODE_KEY, "STREAMING").upper()
    if mode not in RuntimeExecutionMode.__members__:
        raise refusal(
            RUNTIME_MODE_KEY, mode, f"one of {', '.join(RuntimeExecutionMode.__members__)}"
        )
    return RuntimeExecutionMode[mode]


def _is_batch(options: Configuration, graph: StreamGraph) -> bool:
    mode = runtime_mode(options)
    if mode is RuntimeExecutionMode.AUTOMATIC:
        return all(node.is_bounded for node in graph.nodes.values() if node.is_source)
    return mode is RuntimeExecutionMode.BATCH
