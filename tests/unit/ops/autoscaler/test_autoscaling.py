"""The loop of the autoscaler around its machine: what it asks for, and what it does when that does not come about (docs/spec/autoscaler.md)."""

from contextlib import nullcontext

import pytest

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.messages import ResetSubtasks
from penstock.ops.autoscaler.autoscaling import JobAutoscaler
from penstock.ops.autoscaler.rules.decisions import EventKind
from penstock.ops.autoscaler.rules.settings import autoscaler_settings_of
from penstock.ops.jobs.snapshots import VerticesReplaced
from tests.tools.observation.job_records import SINK, SOURCE, ToldJob, attempt, facts

STEP_MS, WINDOW_MS = 100, 500
QUICK = {
    "job.autoscaler.interval": f"{STEP_MS} ms",
    "job.autoscaler.metrics.window": f"{WINDOW_MS} ms",
    "job.autoscaler.stabilization.interval": "0 s",
    "job.autoscaler.scaling.event.interval": "0 s",
}


class Job:
    """A source that is busy all the time and makes 1000 records a second, and a sink that has little to do."""

    def __init__(self, **options):
        self.told = ToldJob(parallelism=1).status("RUNNING").runs(parallelism=1).registers(1)
        self.asked = []
        self.error = self.failure = self.most = self.known = None
        self.memory = {}
        self.counted = 0
        settings = autoscaler_settings_of(Settings({**QUICK, **options}))
        self.scaler = JobAutoscaler(settings, self, lambda _job: nullcontext(self))

    def look(self):
        return self.told.now_it_is()

    def rescale(self, orders):
        self.asked.append(dict(orders))
        if self.error is not None:
            raise self.error

    def failed_rescale(self, since_ms):
        return self.failure

    def slots_max(self):
        return self.most

    def pending_records(self, _vertex):
        return 0

    def partitions(self, _vertex):
        return self.known

    def process(self, _tm_id):
        return self.memory

    def pass_time(self, ms, number=0, parallelism=1):
        """The tasks report, and the loop looks, every 100 ms."""
        for _ in range(ms // STEP_MS):
            self.told.now += STEP_MS
            self.counted += STEP_MS
            for subtask in range(parallelism):
                source, sink = attempt(SOURCE, subtask, number), attempt(SINK, subtask, number)
                self.told.has(source, records_out=self.counted, busy_ms_per_s=1000.0)
                self.told.has(sink, records_in=self.counted, busy_ms_per_s=10.0)
            self.scaler.tick(self.told.now)

    def restart(self):
        for vertex in (SOURCE, SINK):
            self.told.moves(attempt(vertex), "FAILED")
            self.told.tell(ResetSubtasks((attempt(vertex).execution_vertex_id,), False, None))
        self.told.runs(number=1, parallelism=1)

    def grow(self, parallelism):
        vertices = facts(parallelism).vertices
        self.told.tell(VerticesReplaced(vertices, 1, 7, True))
        self.told.runs(number=1, parallelism=parallelism)

    @property
    def events(self):
        return [event.kind for one in self.scaler.decisions() for event in one.events]


def test_a_busy_job_is_asked_to_grow_once_the_window_is_full():
    job = Job()
    job.pass_time(WINDOW_MS)
    assert job.asked == []
    job.pass_time(2 * STEP_MS)
    assert job.asked == [{SOURCE: 2}]


def test_what_is_under_way_is_not_asked_for_again():
    job = Job()
    job.pass_time(4 * WINDOW_MS)
    assert job.asked == [{SOURCE: 2}]


@pytest.mark.parametrize(
    "error", [ConfigurationError("no"), ExternalError("busy"), OSError("disk")]
)
def test_after_a_refusal_the_window_begins_anew_and_it_is_asked_again(error):
    job = Job()
    job.error = error
    job.pass_time(WINDOW_MS + STEP_MS)
    assert len(job.asked) == 1
    assert [one.outcome.refusal for one in job.scaler.decisions() if one.outcome] == [str(error)]
    job.pass_time(WINDOW_MS)
    assert len(job.asked) == 1
    job.pass_time(2 * STEP_MS)
    assert len(job.asked) == 2


def test_a_rescale_that_fails_later_counts_as_a_refusal():
    job = Job()
    job.pass_time(WINDOW_MS + STEP_MS)
    job.failure = "the checkpoint took too long"
    job.pass_time(STEP_MS)
    job.failure = None
    assert [one.outcome.refusal for one in job.scaler.decisions() if one.outcome] == [
        "the checkpoint took too long"
    ]
    job.pass_time(2 * WINDOW_MS)
    assert len(job.asked) == 2


def test_a_restart_empties_the_window():
    job = Job()
    job.pass_time(WINDOW_MS - STEP_MS)
    job.restart()
    job.pass_time(WINDOW_MS, number=1)
    assert job.asked == []
    job.pass_time(2 * STEP_MS, number=1)
    assert job.asked == [{SOURCE: 2}]


def test_a_restart_after_a_decision_forgets_it():
    job = Job()
    job.pass_time(WINDOW_MS + STEP_MS)
    job.restart()
    job.pass_time(2 * WINDOW_MS, number=1)
    assert job.asked == [{SOURCE: 2}] * 2


def test_a_job_that_has_grown_tells_how_long_it_took():
    job = Job()
    job.pass_time(WINDOW_MS + STEP_MS)
    job.told.now += 40
    job.grow(2)
    job.pass_time(STEP_MS, number=1, parallelism=2)
    [outcome] = [one.outcome for one in job.scaler.decisions() if one.outcome]
    assert (outcome.refusal, outcome.took_ms) == ("", 40)


def test_a_job_whose_tasks_do_not_all_run_is_not_measured():
    job = Job()
    job.pass_time(WINDOW_MS)
    job.told.moves(attempt(SINK), "CANCELING")
    job.pass_time(2 * WINDOW_MS)
    assert job.asked == []


def test_nothing_grows_beyond_what_the_cluster_has():
    job = Job()
    job.most = 1
    job.pass_time(2 * WINDOW_MS)
    assert job.asked == []
    assert EventKind.CLUSTER_FULL in job.events


def test_nothing_is_rescaled_while_memory_is_scarce():
    job = Job(**{"job.autoscaler.memory.heap-usage.threshold": "0.9"})
    job.memory = {"Status.JVM.Memory.Heap.Used": 95, "Status.JVM.Memory.Heap.Max": 100}
    job.pass_time(2 * WINDOW_MS)
    assert job.asked == []
    assert EventKind.MEMORY_PRESSURE in job.events
    job.memory = {}
    job.pass_time(2 * WINDOW_MS)
    assert job.asked == [{SOURCE: 2}]


def test_a_job_stays_within_its_quota_of_memory():
    job = Job(**{"job.autoscaler.quota.memory": "150 b"})
    job.memory = {"Status.JVM.Memory.Heap.Used": 100}
    job.pass_time(2 * WINDOW_MS)
    assert job.asked == []
    assert EventKind.QUOTA_REACHED in job.events


def test_a_source_gets_no_more_subtasks_than_it_has_partitions():
    job = Job()
    job.known = 1
    job.pass_time(2 * WINDOW_MS)
    assert job.asked == []
