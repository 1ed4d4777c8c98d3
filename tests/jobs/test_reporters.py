"""Metrics of running jobs in the hands of a true Prometheus, and in the form of a true Flink's reporter."""

import json
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.datagen import NumberSequenceSource
from penstock.datastream import RuntimeExecutionMode
from penstock.datastream.functions import MapFunction, RuntimeContext
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.ops.registry.job_registry import JOB_REGISTRY
from penstock.ops.reporters.running import running_reporter, stop_reporters
from tests.tools.hosting.prometheus import prometheus_server, promtool_says
from tests.tools.programs.environments import minicluster_environment
from tests.tools.waiting import wait_until

FACTORY = "org.apache.flink.metrics.prometheus.PrometheusReporterFactory"
SETTINGS = {
    "metrics.reporter.prom.factory.class": FACTORY,
    "metrics.reporter.prom.port": "0",
    "metrics.fetcher.update-interval": "50 ms",
    "metrics.latency.interval": "20 ms",
}
FLINKS = json.loads(
    (Path(__file__).parents[1] / "conformance" / "prometheus" / "flink_2_3.json").read_text("utf-8")
)
RECORDS_IN = "flink_taskmanager_job_task_numRecordsIn"
OPERATOR = "flink_taskmanager_job_task_operator"
OF_USERS = {f"{OPERATOR}_{name}" for name in ("events", "last", "my_grp_k_1_my_counter")}
STYLE = (
    "should be written in 'snake_case' not 'camelCase'", "should not include type 'counter'",
)  # fmt: skip
"""What promtool says to names of Flink, and to one of this job's own."""
COLLECTORS_OF_JAVA = "_GarbageCollector_G1_"
LAST = (b"_latency{", b"my_counter{", b"_operator_last{", b"unassignedSplits{")
"""Metrics that are not there from the beginning."""
NOT_HERE = {
    *(
        f"{OPERATOR}_{name}"
        for name in (
            "flag", "none", "text", "sizes", "numBytesSend", "numRecordsOutErrors",
            "numRecordsSend", "numRecordsSendErrors",
        )
    ),
}  # fmt: skip
"""No job changes its parallelism while it runs. Users have no gauges but numbers, and no histograms. The job's sink has no writer."""


class Measure(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        self.seen = group.add_group("my grp").add_group("k.1", "v:1 x").counter("my counter")
        self.events = group.meter("events")
        group.gauge("last", lambda: 7)

    def map(self, value):
        self.seen.inc()
        self.events.mark_event()
        return value


@pytest.fixture
def job():
    """The job from which Flink's answers were recorded. Yields the reporter and the id."""
    env = minicluster_environment(MiniCluster(4), SETTINGS).set_parallelism(2)
    numbers = env.from_source(
        NumberSequenceSource(0, 10**9), WatermarkStrategy.no_watermarks(), "Numbers"
    )
    measured = numbers.map(Measure(), output_type=Types.LONG()).name("my map")
    sums = measured.key_by(lambda n: n % 7).reduce(lambda a, b: a + b).name("sum")
    sums.filter(lambda n: False).print()
    running = env.execute_async("golden job")
    yield Running(running)
    stop_reporters()
    if running.get_job_status().result().name == "RUNNING":
        running.cancel().result()


class Running:
    def __init__(self, client):
        self.client = client
        self.id = str(client.get_job_id())
        self.target = "{}:{}".format(*running_reporter("prom").address)

    def page(self):
        with urllib.request.urlopen(f"http://{self.target}/metrics", timeout=60) as answer:
            return answer.read()

    def families(self):
        """Of all metrics that it will ever have: `sum` has received records, and its latency is known."""

        def complete():
            page = self.page()
            return page if all(name in page for name in LAST) else None

        page = wait_until(complete, "some metrics never come").decode()
        return {family.name: family for family in text_string_to_metric_families(page)}

    def end(self):
        self.client.cancel().result()
        status = self.client.get_job_status
        wait_until(lambda: status().result().name == "CANCELED", "the job does not end")


@pytest.mark.foreign
def test_prometheus_answers_with_flinks_names_and_labels(job):
    with prometheus_server(job.target) as prometheus:

        def received():
            found = prometheus.query(f'{RECORDS_IN}{{job_id="{job.id}"}} > 0')
            return found if len(found) == 2 else None

        found = wait_until(received, "no records in both subtasks of the sum")
        for labels, _ in found:
            vertex, subtask = labels["task_id"], labels["subtask_index"]
            assert {**labels, "host": "", "tm_id": "", "subtask_index": ""} == {
                "__name__": RECORDS_IN,
                "job": "penstock",
                "instance": job.target,
                "host": "",
                "tm_id": "",
                "job_id": job.id,
                "job_name": "golden_job",
                "task_id": vertex,
                "task_name": "sum____Filter____Sink:_Print_to_Std__Out",
                "task_attempt_id": f"{job.id}_{vertex}_{subtask}_0",
                "task_attempt_num": "0",
                "subtask_index": "",
            }
        assert {labels["subtask_index"] for labels, _ in found} == {"0", "1"}
        assert len({labels["tm_id"] for labels, _ in found}) == 1
        (target,) = prometheus.targets()
        assert (target["health"], target["lastError"]) == ("up", "")
        job.end()
        wait_until(
            lambda: not prometheus.query(f'{{__name__=~"flink_.+",job_id="{job.id}"}}'),
            "a job that has ended is reported",
        )


@pytest.mark.foreign
def test_promtool_takes_the_page_of_a_job(job):
    job.families()
    told = promtool_says(job.page())
    assert told
    assert [line for line in told if not line.endswith(STYLE)] == []


def test_each_family_of_flinks_reporter_is_here_as_it_is_there(job):
    ours = {name: described(family) for name, family in job.families().items()}
    expected = {
        name: family
        for name, family in FLINKS.items()
        if name not in NOT_HERE and COLLECTORS_OF_JAVA not in name
    }
    assert {name: ours.get(name) for name in expected} == expected
    assert expected.keys() >= OF_USERS
    assert NOT_HERE.isdisjoint(ours)


def described(family):
    """As families of Flink's page were recorded."""
    return {
        "help": family.documentation,
        "type": family.type,
        "labels": sorted({name for line in family.samples for name in line.labels}),
        "lines": sorted({
            line.name[len(family.name) :]
            + (f"|{line.labels['quantile']}" if "quantile" in line.labels else "")
            for line in family.samples
        }),
    }


def test_a_batch_job_is_reported_too(monkeypatch):
    monkeypatch.setattr(JOB_REGISTRY, "observed", {})
    env = minicluster_environment(MiniCluster(), SETTINGS)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    try:
        running = env.from_collection([1, 2, 3]).map(lambda n: n).execute_and_collect("batch job")
        with running as results:
            assert sorted(results) == [1, 2, 3]
        assert [job.facts.name for job in JOB_REGISTRY.snapshot().jobs] == ["batch job"]
    finally:
        stop_reporters()
