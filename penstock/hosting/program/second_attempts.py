"""Which vertices of a streaming job may have two attempts at once, and what the user is told of it.

Source: Flink SupportsConcurrentExecutionAttempts, which sources and sinks say of themselves
(docs/spec/elasticity.md#second-attempts).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from penstock.hosting.coordinators.source_coordinator import CoordinatedVertex
from penstock.hosting.dataframes.source import FrameSource
from penstock.hosting.ha.packed_job import SubmittedJob
from penstock.hosting.jobmanager.machine_shell import JobManagerSettings
from penstock.hosting.shipping.pickling import deserialize
from penstock.machines.execution.slow_tasks import SlowTaskSettings, SpeculationSettings
from penstock.model.config import Settings
from penstock.model.graph.chain import ChainSpec
from penstock.model.graph.job_graph import JobVertex
from penstock.model.ids import VertexId
from penstock.model.options.elastic import SpeculationOptions
from penstock.runtime.operators.sinks import SinkOperator
from penstock.runtime.sources.contract import Boundedness, Source

_KEY = SpeculationOptions.ENABLED.key


def with_second_attempts(
    built: JobManagerSettings, settings: Settings, job: SubmittedJob, say: Callable[[str], None]
) -> JobManagerSettings:
    """Add what second attempts need, if they are asked for, and say which vertices can have them, or why none can.

    Raises: ConfigurationError: a value is out of its range.
    """
    if not settings.get(SpeculationOptions.ENABLED):
        return built
    refused, vertices = refusals(job), job.graph.vertices
    able = frozenset(vertices) - frozenset(refused)
    speculation = _settings_of(settings, able)
    reasons = "; ".join(f"'{vertices[one].name}': {why}" for one, why in refused.items())
    why = _refusal_of_job(built) or (None if able else reasons)
    if why is not None:
        say(f"{_KEY} has no effect on this job: {why}.")
        return built
    names = ", ".join(f"'{vertices[one].name}'" for one in vertices if one in able)
    others = f" Not so: {reasons}." if reasons else ""
    say(f"Slow subtasks get a second attempt: {names}.{others}")
    # Nor is there a savepoint: what an attempt has done before it is not repeated by the next one.
    return replace(
        built,
        job=replace(built.job, speculation=speculation, checkpoints=None),
        task=replace(built.task, checkpointing=None),
        storage=None,
    )


def say_of_batch(settings: Settings, spark: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Tell who asks for second attempts in a BATCH job that Spark decides on them."""
    is_on = spark.get("spark.speculation", "").lower() == "true"
    if settings.get(SpeculationOptions.ENABLED) and not is_on:
        say(
            f"{_KEY} has no effect on BATCH jobs, which run in Spark's stages: set "
            "spark.speculation=true."
        )


def refusals(job: SubmittedJob) -> dict[VertexId, str]:
    """Return why subtasks of a vertex cannot have two attempts at once, for each vertex that cannot."""
    coordinated: dict[VertexId, list[CoordinatedVertex]] = {}
    for place in job.coordinated:
        coordinated.setdefault(place.vertex_id, []).append(place)
    found: dict[VertexId, str] = {}
    for vertex in job.graph.vertices.values():
        sources = [p.coordinator for p in coordinated.get(vertex.vertex_id, ())]
        why = (
            _of_exchanges(vertex)
            or _of_source([one for one in sources if isinstance(one, Source)])
            or _of_chain(job, vertex)
        )
        if why is not None:
            found[vertex.vertex_id] = why
    return found


def _settings_of(settings: Settings, vertices: frozenset[VertexId]) -> SpeculationSettings:
    options = SpeculationOptions
    slow = SlowTaskSettings(
        settings.get(options.BASELINE_RATIO),
        settings.get(options.BASELINE_MULTIPLIER),
        settings.get(options.LOWER_BOUND),
    )
    return SpeculationSettings(
        vertices,
        slow,
        settings.get(options.CHECK_INTERVAL),
        settings.get(options.MOST_ATTEMPTS),
        settings.get(options.BLOCK_FOR),
    )


def _refusal_of_job(built: JobManagerSettings) -> str | None:
    checkpoints, storage = built.job.checkpoints, built.storage
    if checkpoints is not None and checkpoints.is_periodic:
        return "it takes checkpoints, and a second attempt would begin from its first record"
    if storage is not None and storage.completed:
        return "it begins with a checkpoint"
    return "it is elastic" if built.job.elastic.is_adaptive else None


def _of_exchanges(vertex: JobVertex) -> str | None:
    if vertex.inputs or vertex.outputs:
        return "it exchanges records with other vertices"
    return None


def _of_source(sources: list[Source]) -> str | None:
    for source in sources:
        if source.boundedness is not Boundedness.BOUNDED:
            return "its source has no end"
        if source.sends_events:
            return "the readers of its source send events of their own"
        if isinstance(source, FrameSource):
            return "Spark hands its DataFrame out once"
    return None


def _of_chain(job: SubmittedJob, vertex: JobVertex) -> str | None:
    assert vertex.chain_blob is not None, "a submitted vertex has its code"
    try:
        chain: ChainSpec = deserialize(job.graph.blobs[vertex.chain_blob])
    except (
        Exception
    ) as error:  # Unpickling runs the user's code, which may need the user's modules.
        return f"its functions cannot be opened in this driver ({type(error).__name__}: {error})"
    if chain.outputs:
        return "its records are printed or collected"
    for one in chain.operators:
        sink = one.operator.sink if isinstance(one.operator, SinkOperator) else None
        if sink is not None and sink.create_committer() is None:
            return f"what '{one.name}' writes is visible at once"
    return None
