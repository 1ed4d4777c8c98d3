"""Metrics, spans and events of a job that runs, in the hands of a collector of OpenTelemetry."""

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.datagen import NumberSequenceSource
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.errors import ConfigurationError
from penstock.ops.reporters.running import stop_reporters
from tests.tools.hosting.otlp import attributes, http_collector
from tests.tools.programs.environments import RESTARTS, minicluster_environment
from tests.tools.waiting import wait_until

FACTORIES = {
    "metrics": "org.apache.flink.metrics.otel.OpenTelemetryMetricReporterFactory",
    "traces": "org.apache.flink.traces.otel.OpenTelemetryTraceReporterFactory",
    "events": "org.apache.flink.events.otel.OpenTelemetryEventReporterFactory",
}
PATHS = {"metrics": "metrics", "traces": "traces", "events": "logs"}


class Failure:
    """When the test wants one."""

    is_wanted = False


def number_or_failure(number):
    if Failure.is_wanted:
        Failure.is_wanted = False
        raise ValueError("planned failure")
    return number


@pytest.fixture
def collector():
    with http_collector() as made:
        yield made
        stop_reporters()


@pytest.fixture
def job(collector, tmp_path):
    settings = {
        **RESTARTS,
        "execution.checkpointing.interval": "20 ms",
        "execution.checkpointing.dir": str(tmp_path),
        "metrics.fetcher.update-interval": "50 ms",
        "metrics.reporter.o.interval": "50 ms",
        "traces.checkpoint.span-detail-level": "CHILDREN_SPANS_PER_TASK",
    }
    for kind, factory in FACTORIES.items():
        own = f"{kind}.reporter.o."
        settings |= {
            f"{own}factory.class": factory,
            f"{own}exporter.protocol": "HTTP",
            f"{own}exporter.endpoint": f"{collector.address}/v1/{PATHS[kind]}",
        }
    env = minicluster_environment(MiniCluster(4), settings).set_parallelism(2)
    source = NumberSequenceSource(0, 10**9)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "Numbers")
    slow = numbers.map(number_or_failure, output_type=Types.LONG()).name("my map")
    sums = slow.key_by(lambda n: n % 7).reduce(lambda a, b: a + b).name("sum")
    sums.filter(lambda n: False).print()
    running = env.execute_async("my job")
    yield running
    if running.get_job_status().result().name == "RUNNING":
        running.cancel().result()


def spans(collector, name):
    return [
        span
        for request in list(collector.requests)
        for of_resource in getattr(request, "resource_spans", ())
        for of_scope in of_resource.scope_spans
        for span in of_scope.spans
        if span.name == name
    ]


def events(collector, name):
    found = [
        attributes(record)
        for request in list(collector.requests)
        for of_resource in getattr(request, "resource_logs", ())
        for of_scope in of_resource.scope_logs
        for record in of_scope.log_records
    ]
    return [one for one in found if one["name"] == name]


def points(collector, name):
    return [
        point
        for request in list(collector.requests)
        for of_resource in getattr(request, "resource_metrics", ())
        for of_scope in of_resource.scope_metrics
        for metric in of_scope.metrics
        if metric.name == name
        for point in metric.sum.data_points
    ]


def test_a_collector_sees_starts_checkpoints_and_a_recovery(collector, job):
    (start,) = wait_until(lambda: spans(collector, "JobInitialization"), "no start")
    assert attributes(start)["initializationStatus"] == "COMPLETED"
    assert attributes(start)["job_name"] == "my job"
    assert 0 < start.start_time_unix_nano <= start.end_time_unix_nano
    checkpoint = wait_until(lambda: spans(collector, "Checkpoint"), "no checkpoint")[0]
    found = attributes(checkpoint)
    assert (found["checkpointStatus"], found["jobId"]) == ("COMPLETED", str(job.get_job_id()))
    assert found["metadataSize"] > 0
    tasks = [
        one
        for one in spans(collector, "Checkpoint_Task")
        if one.parent_span_id == checkpoint.span_id
    ]
    assert len({attributes(one)["jobVertexId"] for one in tasks}) == len(tasks) == 2
    Failure.is_wanted = True
    (recovery,) = wait_until(lambda: spans(collector, "JobRecovery"), "no recovery")
    found = attributes(recovery)
    assert (found["recoveryStatus"], found["restartedSubtasks"]) == ("RECOVERED", 4)
    assert found["cause"] == "UserCodeError"
    assert found["checkpointId"] > 0
    again = wait_until(
        lambda: spans(collector, "JobInitialization")[1:], "the start after the failure is not told"
    )
    assert attributes(again[0])["checkpointId"] == found["checkpointId"]
    (failure,) = wait_until(lambda: events(collector, "JobFailureEvent"), "no failure")
    assert (failure["canRestart"], failure["isGlobalFailure"]) == ("true", "false")


def test_the_deltas_of_a_counter_add_up_to_what_the_job_counts(collector, job):
    """As long as nothing fails, so that there is one attempt of each subtask."""
    name = "flink.taskmanager.job.task.operator.numRecordsIn"

    def received():
        # Jobs of other tests in this process may have such an operator, too.
        wanted = {"operator_name": "sum", "job_id": str(job.get_job_id())}
        found = [
            one for one in points(collector, name) if wanted.items() <= attributes(one).items()
        ]
        return found if sum(one.as_int for one in found) > 0 else None

    found = wait_until(received, "nothing is received")
    assert {attributes(one)["job_name"] for one in found} == {"my job"}
    by_subtask = {}
    for one in found:
        by_subtask.setdefault(attributes(one)["subtask_index"], []).append(one)
    for ones in by_subtask.values():
        assert ones[0].start_time_unix_nano == 0
        for former, later in zip(ones, ones[1:], strict=False):
            assert later.start_time_unix_nano == former.time_unix_nano


def test_the_last_change_of_the_status_is_told_when_the_driver_ends(collector, job):
    wait_until(lambda: spans(collector, "JobInitialization"), "no start")
    job.cancel().result()
    status = job.get_job_status
    wait_until(lambda: status().result().name == "CANCELED", "the job does not end")
    stop_reporters()
    statuses = [one["newJobStatus"] for one in events(collector, "JobStatusChangeEvent")]
    assert statuses[-2:] == ["CANCELLING", "CANCELED"]
    assert "RUNNING" in statuses


@pytest.mark.parametrize(
    ("key", "known"),
    [
        ("traces.checkpoint.span-detail-level", "SPAN_PER_CHECKPOINT"),
        ("metrics.job.status.enable", "CURRENT_TIME"),
    ],
)
def test_a_value_that_there_is_not_is_refused_with_those_that_there_are(key, known):
    factory = "org.apache.flink.traces.slf4j.Slf4jTraceReporterFactory"
    settings = {key: "SOME", "traces.reporter.log.factory.class": factory}
    env = minicluster_environment(MiniCluster(1), settings)
    env.from_collection([1]).print()
    try:
        with pytest.raises(ConfigurationError, match=f"{key}.*{known}"):
            env.execute()
    finally:
        stop_reporters()
