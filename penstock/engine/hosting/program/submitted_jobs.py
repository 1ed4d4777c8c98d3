"""From a program's StreamGraph to a SubmittedJob: the JobGraph, with everything that it needs on
other machines.

Knows no TaskManagers and starts nothing. Mistakes of a program that can be found in advance are
reported here.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import replace

from penstock.engine.compiler.job_graph_builder import build_job_graph
from penstock.engine.hosting.jobmanager.coordinators.coordinators import coordinated_vertices
from penstock.engine.hosting.jobmanager.ha.packed_job import SubmittedJob
from penstock.engine.hosting.program.function_strategies import (
    call_functions,
    note_function_strategies,
    read_all_fields,
    reuse_objects,
)
from penstock.engine.hosting.program.host import Sizes, check_sizes
from penstock.engine.hosting.program.settings import (
    job_parameters,
    python_archives,
    python_files,
    python_requirements,
)
from penstock.engine.hosting.shipping.in_process import import_here
from penstock.engine.hosting.shipping.main_classes import shipped_classes
from penstock.engine.hosting.shipping.pickling import serialize_program
from penstock.engine.hosting.shipping.program_modules import user_modules_archive
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.auto_parallelism import auto_parallelism_of
from penstock.engine.model.graph.stream_graph import StreamGraph
from penstock.engine.model.ids import JobId
from penstock.engine.model.options.program import ExecutionOptions, PipelineOptions
from penstock.engine.model.options.scheduling import SchedulingOptions
from penstock.engine.model.options.task import TaskOptions
from penstock.engine.model.program import ProgramSettings
from penstock.engine.runtime.batch.graph import in_batch


def submitted_job(
    host: Sizes,
    graph: StreamGraph,
    program: ProgramSettings,
    settings: Settings,
    *,
    knows_volumes: bool = True,
) -> tuple[StreamGraph, SubmittedJob]:
    """Build the job of a program with the host's defaults and the operators of its runtime mode.

    `knows_volumes`: the stages of a BATCH job run one after the other, so the size of the data can
    decide the parallelism of later ones. In the lineage of a DataFrame all parallelisms are set in
    advance.
    Raises: GraphError, ConfigurationError.
    """
    configured = settings.get(SchedulingOptions.DEFAULT_PARALLELISM)
    if configured is None:
        configured = host.default_parallelism(settings)
    graph.default_parallelism = configured
    fixed_id = fixed_job_id(settings)
    if graph.is_batch:
        if knows_volumes:
            graph.auto_parallelism = auto_parallelism_of(settings, host.cores(settings))
        graph = in_batch(graph, is_combining=settings.get(ExecutionOptions.BATCH_COMBINE))
    if not settings.get(TaskOptions.FUNCTIONS_AS_COLUMNS):
        call_functions(graph)
    if settings.get(PipelineOptions.OBJECT_REUSE):
        reuse_objects(graph)
    if settings.get(TaskOptions.PARSE_UNREAD_FIELDS):
        read_all_fields(graph)
    job_graph = build_job_graph(graph, JobId(fixed_id or uuid.uuid4().hex), serialize_program)
    note_function_strategies(graph, job_graph)
    check_sizes(job_graph)
    files = python_files(settings, program)
    if not host.ships_modules:
        import_here(files)
    return graph, SubmittedJob(
        job_graph,
        tuple(coordinated_vertices(job_graph.vertices, graph.nodes)),
        replace(
            program,
            configuration=settings.as_text(),
            job_parameters=job_parameters(settings, program),
            python_archives=python_archives(settings, program),
            python_requirements=python_requirements(settings, program),
        ),
        user_modules_archive(files) if host.ships_modules else b"",
        classes=shipped_classes(),
    )


def fixed_job_id(settings: Settings) -> str | None:
    """Return the configured job id in lower case; None: none is configured. Raises ConfigurationError."""
    text = settings.get(PipelineOptions.FIXED_JOB_ID)
    if text is None:
        return None
    if re.fullmatch(r"[0-9a-fA-F]{32}", text) is None:
        raise ConfigurationError(
            f"option 'pipeline.fixed-job-id' is {text!r}, but it takes 32 hexadecimal digits. "
            "Change the setting."
        )
    return text.lower()
