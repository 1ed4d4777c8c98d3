"""What a job is, as its snapshots show it: from its graph and its settings, without secrets."""

from __future__ import annotations

from typing import Final

from penstock.engine.hosting.os.clock import wall_ms
from penstock.engine.machines.checkpoints.settings import CheckpointSettings
from penstock.engine.machines.failover import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    restart_backoff_of,
)
from penstock.engine.machines.rescaling.adaptive_settings import adaptive_settings_of
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.job_graph import JobGraph, JobVertex
from penstock.engine.model.options.checkpoints import (
    CheckpointOptions,
    StateBackendOptions,
)
from penstock.engine.model.options.cluster import HeartbeatOptions
from penstock.engine.model.options.option import INT_MAX
from penstock.engine.model.options.reporters import TraceReporterOptions
from penstock.engine.model.options.scheduling import (
    HistoryOptions,
    RestartOptions,
    SchedulingOptions,
)
from penstock.engine.model.options.task import MetricOptions
from penstock.engine.model.program import ProgramSettings
from penstock.engine.model.texts.redaction import redacted
from penstock.ops.jobs.snapshots import (
    CheckpointFacts,
    ElasticFacts,
    InputFacts,
    JobFacts,
    OptionFacts,
    ReportingFacts,
    RestartFacts,
    SpanDetail,
    VertexFacts,
)
from penstock.ops.metrics.job_metrics import state_kinds

_LATE_HEARTBEATS: Final = 3
_BACKENDS: Final = {"hashmap": "HashMapStateBackend", "rocksdb": "EmbeddedRocksDBStateBackend"}


def facts_of(
    job_graph: JobGraph,
    settings: Settings,
    program: ProgramSettings,
    checkpoints: CheckpointSettings | None,
) -> JobFacts:
    """Return the facts of a job that is submitted now. `checkpoints` None: it can take none.

    Raises: ConfigurationError: `metrics.job.status.enable` or `traces.checkpoint.span-detail-level` names what there is not.
    """
    parallelism = settings.get(SchedulingOptions.DEFAULT_PARALLELISM)
    kinds = settings.get(MetricOptions.JOB_STATUS)
    return JobFacts(
        job_id=job_graph.job_id,
        name=job_graph.name,
        job_type=job_graph.job_type,
        vertices=vertices_of(job_graph),
        submitted_ms=wall_ms(),
        checkpoints=None if checkpoints is None else _checkpoints(settings, checkpoints),
        configuration=redacted(settings.as_dict()),
        user_config=redacted(program.job_parameters),
        restarts=_restarts(settings),
        parallelism=-1 if parallelism is None else parallelism,
        history_size=settings.get(HistoryOptions.CHECKPOINTS),
        reporting=ReportingFacts(state_kinds(kinds), _span_detail(settings)),
        late_after_ms=_late_after_ms(settings),
        options=OptionFacts(settings.origins(), redacted(settings.host_defaults())),
        elastic=ElasticFacts(
            adaptive_settings_of(
                settings, None if checkpoints is None else checkpoints.interval_ms
            ),
            settings.get(SchedulingOptions.SLOT_IDLE_TIMEOUT),
        ),
    )


def vertices_of(job_graph: JobGraph) -> tuple[VertexFacts, ...]:
    return tuple(_vertex(job_graph, one) for one in job_graph.vertices.values())


def _vertex(job_graph: JobGraph, vertex: JobVertex) -> VertexFacts:
    kinds = {
        data_set.data_set_id: str(data_set.result_type).lower()
        for one in job_graph.vertices.values()
        for data_set in one.outputs
    }
    return VertexFacts(
        vertex.vertex_id,
        vertex.name,
        vertex.parallelism,
        vertex.max_parallelism,
        vertex.slot_sharing_group,
        vertex.operators,
        tuple(
            InputFacts(
                edge.source,
                str(edge.ship_strategy),
                kinds[edge.data_set_id],
                edge.data_set_id,
            )
            for edge in vertex.inputs
        ),
    )


def _checkpoints(settings: Settings, checkpoints: CheckpointSettings) -> CheckpointFacts:
    backend = settings.get(StateBackendOptions.TYPE)
    is_stored = settings.get(CheckpointOptions.DIR) is not None
    storage = "FileSystemCheckpointStorage" if is_stored else "JobManagerCheckpointStorage"
    return CheckpointFacts(checkpoints, _BACKENDS.get(backend, backend), storage)


def _span_detail(settings: Settings) -> SpanDetail:
    option = TraceReporterOptions.DETAIL
    text = settings.get(option)
    try:
        return SpanDetail(text.strip().upper())
    except ValueError:
        raise ConfigurationError(
            f"option '{option.key}' is {text!r}. Set it to one of {', '.join(SpanDetail)}."
        ) from None


def _late_after_ms(settings: Settings) -> int:
    """Several heartbeats are missing, or half of the time is over after which it counts as lost."""
    interval_ms = settings.get(HeartbeatOptions.INTERVAL)
    return max(_LATE_HEARTBEATS * interval_ms, settings.get(HeartbeatOptions.TIMEOUT) // 2)


def _restarts(settings: Settings) -> RestartFacts:
    kind = settings.get(RestartOptions.TYPE)
    if kind is None:
        return RestartFacts("Cluster level default restart strategy")
    match restart_backoff_of(settings):
        case NoRestart():
            return RestartFacts(kind, 0)
        case FixedDelayRestart(attempts=most):
            return RestartFacts(kind, _limit(most))
        case FailureRateRestart(max_per_interval=most, interval_ms=interval_ms):
            return RestartFacts(kind, _limit(most), interval_ms)
        case ExponentialDelayRestart(attempts_before_reset=most):
            return RestartFacts(kind, _limit(most))
    return RestartFacts(kind)


def _limit(most: int) -> int | None:
    return None if most >= INT_MAX else most
