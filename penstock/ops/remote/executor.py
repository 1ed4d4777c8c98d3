"""Submits the jobs of this program to a session: `engine.model.program.JobExecutor` without a host of its own.

Source: Flink RemoteExecutor (execution.target `remote`); differs: the session names the default parallelism, because it knows its cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.engine.hosting.jobmanager.driver_streams import PRINT_STREAM
from penstock.engine.hosting.program.host import reads_frames
from penstock.engine.hosting.program.settings import HOST_DEFAULTS
from penstock.engine.hosting.program.submitted_jobs import submitted_job
from penstock.engine.hosting.reporting.say import say
from penstock.engine.hosting.spark.batch.plan import speakers_of
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.stream_graph import StreamGraph
from penstock.engine.model.ids import JobId
from penstock.engine.model.options.program import REMOTE, DeploymentOptions
from penstock.engine.model.program import FRAME_STREAM, ProgramSettings
from penstock.ops.remote.job import RemoteJob, heartbeat_times_of
from penstock.ops.remote.rows import check_rows
from penstock.ops.remote.session_client import SessionClient, Submission, packed

_OF_THE_SESSION: Final = (
    "rest.",
    "penstock.rest.",
    "security.ssl.rest.",
    "high-availability.",
    "penstock.high-availability.",
    "jobstore.",
    "web.",
    "penstock.web.",
    DeploymentOptions.TARGET.key,
    DeploymentOptions.ATTACHED.key,
    DeploymentOptions.ENDS_WITH_CLIENT.key,
)
"""Options that the session sets for all its jobs: what a client has is about the client itself."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The size that a session reports: enough of a host to build a job for it."""

    parallelism: int
    slots: int
    ships_modules: bool = True

    def default_parallelism(self, settings: Settings) -> int:
        return self.parallelism

    def cores(self, settings: Settings) -> int:
        return self.slots


class RemoteExecutor:
    """Submits the jobs of this program to a session. `command_line`: options that those of the program override."""

    def __init__(self, command_line: Mapping[str, str]) -> None:
        self._command_line = dict(command_line)

    def options_of(self, program: ProgramSettings) -> Mapping[str, str]:
        """See `engine.model.program.JobExecutor`."""
        return Settings(program.configuration, command_line=self._command_line).as_text()

    def submit(self, graph: StreamGraph, program: ProgramSettings) -> RemoteJob:
        """Submit the job. Raises GraphError, ConfigurationError, RemoteError before it runs."""
        settings = Settings(
            program.configuration, command_line=self._command_line, defaults=HOST_DEFAULTS
        )
        reads_rows = _reads_rows(graph)
        session = SessionClient(settings)
        heartbeats = heartbeat_times_of(settings) if reads_rows else None
        if reads_rows:
            check_rows(session)
        about = session.about()
        sizes = _Sizes(about["parallelism"], about["cores"])
        graph, job = submitted_job(sizes, graph, program, settings)
        if reads_frames(job):
            raise GraphError(
                "the program reads a Spark DataFrame, which belongs to this process's Spark. Write "
                "it to files and read these, or run the program without a session."
            )
        kept = {
            key: value
            for key, value in job.program.configuration.items()
            if not key.startswith(_OF_THE_SESSION)
        }
        job = replace(job, program=replace(job.program, configuration=kept))
        speakers = None
        if graph.is_batch:
            speakers = frozenset(speakers_of(job.graph, graph.nodes))
        job_id = JobId(session.submit(packed(Submission(job, speakers, reads_rows))))
        say(f"job '{graph.job_name}' ({job_id}) runs in the session at {session.rest.address}")
        return RemoteJob(
            session,
            job_id,
            graph.job_name,
            is_attached=settings.get(DeploymentOptions.ATTACHED),
            ends_with_client=settings.get(DeploymentOptions.ENDS_WITH_CLIENT),
            heartbeats=heartbeats,
        )


def _reads_rows(graph: StreamGraph) -> bool:
    """Whether the program takes rows of the job. Raises GraphError: it wants a DataFrame, which the session's Spark would have."""
    streams = {node.driver_stream: node for node in graph.nodes.values()}
    frame = streams.get(FRAME_STREAM)
    if frame is not None:
        raise GraphError(
            f"'{frame.name}' ({frame.defined_at}) is to become a DataFrame of this program "
            "(to_spark), but a session has a Spark of its own. Write the rows to a sink, such as a "
            "FileSink, and read that, collect them (execute_and_collect), or run the program "
            "without a session."
        )
    return bool(streams.keys() - {None, PRINT_STREAM})


def is_remote(configuration: Mapping[str, object], command_line: Mapping[str, str]) -> bool:
    """Whether jobs go to a session. Raises ConfigurationError: there is no such target."""
    settings = Settings(configuration, command_line=command_line)
    return settings.get(DeploymentOptions.TARGET) == REMOTE
