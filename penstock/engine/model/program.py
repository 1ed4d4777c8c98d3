"""The contract between the API and the host that runs a program. Plain data and two ports.

Does not know the API above or the hosts below, so that the same program runs on Spark, on a MiniCluster or in a test's
fake. Source: Flink PipelineExecutor and JobClient; differs: restart strategies travel as configuration keys only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

from penstock.engine.model.checkpoints import CheckpointStatistics, CheckpointType
from penstock.engine.model.elastic import (
    JobResourceRequirements,
    ParallelismBounds,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.stream_graph import StreamGraph
from penstock.engine.model.ids import JobId
from penstock.engine.model.messages import TaskIo
from penstock.engine.model.states import JobStatus

FRAME_STREAM: Final = "dataframe"
"""The driver stream of `to_spark` in BATCH mode: its records stay in Spark, which continues with them."""


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """The settings of a program besides its graph.

    `configuration`: the program's own keys, Flink's text form; restart strategies included. `python_archives`:
    (archive, target directory or None). `python_requirements`: (file, cache directory or None).
    """

    configuration: Mapping[str, str] = field(default_factory=dict)
    python_files: tuple[str, ...] = ()
    python_archives: tuple[tuple[str, str | None], ...] = ()
    python_requirements: tuple[str, str | None] | None = None
    job_parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How a job ended. `failure`: the first failure's full text, user's traceback included."""

    status: JobStatus
    net_runtime_ms: int
    failure: str | None = None


class JobControl(Protocol):
    """A submitted job as its program sees it. Every method may be called from any thread."""

    @property
    def job_id(self) -> JobId: ...

    def status(self) -> JobStatus: ...

    def wait(self, timeout_s: float | None = None) -> JobOutcome:
        """Block until the job is over; TimeoutError when that takes longer than `timeout_s`."""

    def cancel(self) -> None:
        """Request cancellation, and return at once."""

    def interrupted(self) -> bool:
        """Ctrl-C came while the program did something else than `wait` for the job: cancel it, and say so.

        Returns: whether its end is to be waited for. False: it was the second Ctrl-C.
        """

    def start_savepoint(
        self, kind: CheckpointType, directory: str | None
    ) -> Callable[[float | None], str]:
        """Request a savepoint below `directory`; None: the configured directory.

        The returned function waits for it, at most the given seconds, and returns its folder. With a STOP_* kind the
        job has ended then. Raises: ExternalError, ConfigurationError.
        """

    def resource_requirements(self) -> JobResourceRequirements:
        """What parallelism the vertices of the job may have. Raises: ExternalError, ConfigurationError: it is no such job."""

    def rescale(self, asked: Mapping[str, int | tuple[int, int]]) -> None:
        """Request another parallelism of vertices, by name or id: a number, or a lower and an upper bound.

        Raises: ConfigurationError: the job cannot have it. ExternalError: it could not be recorded.
        """

    def require_resources(self, asked: Mapping[str, ParallelismBounds]) -> None:
        """As `rescale`, for all vertices at once."""

    def checkpoints(self) -> CheckpointStatistics: ...

    def task_metrics(self) -> list[tuple[str, int, TaskIo]]:
        """(vertex name, subtask, counters and gauges) of each subtask, as of the last heartbeats."""

    def collect(self, stream: str, *, shows_error: bool = True) -> Iterator[list[Any]]:
        """Batches of a collect stream until the job ends; JobExecutionError when it fails.

        `shows_error` False: the caller does not pass the error on to the program, so it must be shown elsewhere.
        """


class NotRescalable:
    """The part of `JobControl` that a job has whose parallelism stays as it is. `why_not`: in words."""

    why_not = "this job cannot be rescaled."

    def resource_requirements(self) -> JobResourceRequirements:
        raise ConfigurationError(self.why_not)

    def rescale(self, asked: Mapping[str, int | tuple[int, int]]) -> None:
        raise ConfigurationError(self.why_not)

    def require_resources(self, asked: Mapping[str, ParallelismBounds]) -> None:
        raise ConfigurationError(self.why_not)


class JobExecutor(Protocol):
    """Runs programs."""

    def options_of(self, program: ProgramSettings) -> Mapping[str, str]:
        """The options of a program, with those that the command line and Spark's configuration set. Raises ConfigurationError."""

    def submit(self, graph: StreamGraph, program: ProgramSettings) -> JobControl:
        """Fill in the defaults that only the host knows (parallelism), build, and start."""


@runtime_checkable
class FrameExecutor(JobExecutor, Protocol):
    """An executor with a Spark session, which can take results over."""

    def lazy_frame(
        self, graph: StreamGraph, program: ProgramSettings, type_info: object
    ) -> Any | None:
        """A DataFrame of the records of the graph's one sink, for which nothing runs yet; None: the job has to run
        first.
        """

    def results_folder(self, program: ProgramSettings) -> str:
        """Make a directory that the job and Spark can read and write. Raises: ConfigurationError."""

    def frame_of_files(self, folder: str, program: ProgramSettings, type_info: Any) -> Any:
        """A DataFrame of the Parquet files in this folder."""
