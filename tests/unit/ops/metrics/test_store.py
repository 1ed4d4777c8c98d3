"""What the store keeps, and what REST and reporters get of it."""

import pytest

from penstock.engine.metrics.report_format import ReportEncoder, Section
from penstock.engine.metrics.scopes import Component, Place, ScopeFormats
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.metrics import Measured, MetricType, Quantiles, Rate
from penstock.ops.metrics.entities import (
    CoordinatorScope,
    JobManagerScope,
    JobScope,
    SubtaskScope,
    TaskManagerScope,
    VertexScope,
)
from penstock.ops.metrics.store import ALL, Aggregated, Aggregation, MetricStore, aggregated, skew

VALUES = [{"a": "1", "b": "x"}, {"a": "3", "b": "2"}, {"c": "5"}]


def test_an_entity_without_the_metric_does_not_count():
    (found,) = aggregated(["a"], VALUES)
    assert found == Aggregated(
        "a",
        {
            Aggregation.MIN: 1, Aggregation.MAX: 3, Aggregation.AVG: 2, Aggregation.SUM: 4,
            Aggregation.SKEW: 50,
        },
    )  # fmt: skip


def test_a_metric_that_is_no_number_is_left_out():
    assert [one.id for one in aggregated(["b", "a"], VALUES)] == ["a"]


def test_a_metric_that_nobody_has_empties_the_whole_answer():
    assert aggregated(["a", "nothing"], VALUES) == []
    assert aggregated(["a"], []) == []


def test_only_the_wanted_numbers_are_there():
    (found,) = aggregated(["c"], VALUES, frozenset({Aggregation.MAX}))
    assert dict(found.numbers) == {Aggregation.MAX: 5}
    assert set(aggregated(["c"], VALUES)[0].numbers) == ALL


@pytest.mark.parametrize(
    ("numbers", "percent"),
    [
        ([5], 0),
        ([0, 0], 0),
        ([4, 4, 4], 0),
        ([1, 3], 50),
        ([0, 0, 0, 12], 100),
        ([2, 4, 6], 100 / 3),
    ],
)
def test_the_skew_is_the_mean_deviation_in_percent_of_the_mean(numbers, percent):
    assert skew(numbers) == pytest.approx(percent)


PROCESS = {"host": "h.1", "tm_id": "tm-1"}
TASK = {"job_id": "j", "job_name": "the job", "task_id": "v", "task_name": "src -> my map"}
MAP = {**TASK, "operator_id": "o", "operator_name": "my map"}
HISTOGRAM = Quantiles(3, 1, 3, 2.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0)
VERTEX = VertexScope("j", "v")


def counter(name: str, value: int) -> Measured:
    return Measured(name, MetricType.COUNTER, value)


def gauge(name: str, value, groups=()) -> Measured:
    return Measured(name, MetricType.GAUGE, value, groups)


def task(subtask: int, *metrics: Measured, attempt: int = 0) -> Section:
    return Section(Component.TASK, TASK, metrics, subtask, attempt)


def operator(subtask: int, *metrics: Measured, attempt: int = 0) -> Section:
    return Section(Component.OPERATOR, MAP, metrics, subtask, attempt)


def report(*sections: Section) -> bytes:
    return ReportEncoder(PROCESS).encode(sections)


@pytest.fixture
def store() -> MetricStore:
    return MetricStore()


def test_ids_of_tasks_and_operators_are_those_of_flinks_rest(store):
    group = (("my grp", None), ("k.1", "v:1 x"))
    store.report(
        report(
            task(0, counter("numRecordsIn", 5), gauge("isBackPressured", value=False)),
            operator(
                0, gauge("my counter", 7, group), Measured("h", MetricType.HISTOGRAM, HISTOGRAM)
            ),
        ),
    )
    found = store.values(VERTEX)
    assert found["0.numRecordsIn"] == "5"
    assert found["0.isBackPressured"] == "false"
    assert found["0.my_map.my_grp.k_1.v_1_x.my_counter"] == "7"
    assert found["0.my_map.h_p99"] == "3.0"
    assert "0.my_map.h" not in found
    assert set(found) == set(store.ids(VERTEX))
    of_subtask = store.values(SubtaskScope("j", "v", 0))
    assert {f"0.{one}": value for one, value in of_subtask.items()} == found


def test_wanted_ids_are_found_and_unknown_ones_left_out(store):
    store.report(report(task(0, counter("a", 1)), task(1, counter("a", 2))))
    assert store.values(VERTEX, ["1.a", "0.b", "7.a", "x.a", "a"]) == {"1.a": "2"}
    assert store.value(VERTEX, "1.a") == 2
    assert store.value(VERTEX, "1.b") is None


def test_what_nobody_reported_is_empty(store):
    for scope in (
        VERTEX, SubtaskScope("j", "v", 0), JobScope("j"), JobManagerScope(),
        TaskManagerScope("tm"), CoordinatorScope("j", "v"),
    ):  # fmt: skip
        assert store.values(scope) == {}
        assert store.ids(scope) == []
        assert store.value(scope, "a") is None


def test_a_report_replaces_what_the_subtask_had(store):
    store.report(report(task(0, counter("a", 1), counter("b", 1)), operator(0, counter("c", 1))))
    store.report(report(task(0, counter("a", 2))))
    assert store.values(VERTEX) == {"0.a": "2"}


def test_only_the_current_attempt_is_kept(store):
    store.report(report(task(0, counter("a", 1))))
    store.report(report(task(0, counter("a", 0), attempt=1)))
    store.report(report(task(0, counter("a", 5), counter("b", 5), attempt=0)))
    assert store.values(VERTEX) == {"0.a": "0"}


def test_a_new_attempt_begins_without_metrics(store):
    store.report(report(task(0, counter("a", 1)), task(1, counter("a", 1))))
    store.attempt_began("j", "v", 0, 1)
    assert store.values(VERTEX) == {"1.a": "1"}
    store.attempt_began("j", "v", 1, 0)
    assert store.values(VERTEX) == {"1.a": "1"}, "that is the attempt that reported"


def test_at_the_end_of_a_subtask_its_shares_of_time_go_and_all_else_stays(store):
    shares = ("idleTimeMsPerSecond", "busyTimeMsPerSecond", "backPressuredTimeMsPerSecond")
    others = ("softBackPressuredTimeMsPerSecond", "accumulateIdleTimeMs", "numRecordsIn")
    told = task(0, *(gauge(name, 1) for name in (*shares, *others)))
    store.report(report(told))
    store.attempt_ended("j", "v", 0, 0)
    assert set(store.values(VERTEX)) == {f"0.{name}" for name in others}
    store.report(report(told))
    assert set(store.values(VERTEX)) == {f"0.{name}" for name in others}, "a late report"
    store.attempt_began("j", "v", 0, 1)
    store.report(report(task(0, gauge(shares[0], 1), attempt=1)))
    assert set(store.values(VERTEX)) == {f"0.{shares[0]}"}


def test_reporters_do_not_see_subtasks_that_have_ended_unless_they_want_to(store):
    store.report(report(task(0, counter("a", 1)), task(1, counter("a", 1))))
    store.attempt_ended("j", "v", 1, 0)
    assert [one.variables["subtask_index"] for one in store.metrics()] == ["0"]
    assert len(list(store.metrics(with_ended=True))) == 2


def test_reporters_do_not_see_jobs_that_have_ended_unless_they_want_to(store):
    job = {"host": "d", "job_id": "j", "job_name": "the job"}
    store.report(report(task(0, counter("a", 1))))
    store.put(Place(Component.JM_JOB, job), [gauge("uptime", 7)])
    coordinator = {"task_id": "v", "task_name": "t", "operator_id": "o", "operator_name": "o"}
    store.put(Place(Component.JM_OPERATOR, {**job, **coordinator}), [gauge("splits", 1)])
    store.put(Place(Component.JM_JOB, {**job, "job_id": "other"}), [gauge("uptime", 8)])
    store.job_ended("j")
    store.put(Place(Component.JM_JOB, job), [gauge("uptime", -1)])
    assert [(one.variables["job_id"], one.measured.value) for one in store.metrics()] == [
        ("other", 8)
    ]
    assert len(list(store.metrics(with_ended=True))) == 4
    assert store.values(JobScope("j")) == {"uptime": "-1"}, "REST still shows them"


def test_reporters_get_scopes_and_variables(store):
    told = gauge("my counter", 7, (("my grp", None), ("k.1", "v:1 x")))
    store.report(report(operator(3, told, attempt=2)))
    (found,) = store.metrics()
    assert found.measured == told
    assert found.logical_scope() == "taskmanager.job.task.operator.my grp.k_1"
    assert found.variables == {
        **PROCESS, **MAP, "subtask_index": "3", "task_attempt_num": "2",
        "task_attempt_id": "j_v_3_2", "k.1": "v:1 x",
    }  # fmt: skip
    expected = "h_1.taskmanager.tm-1.the job.my map.3.my grp.k_1.v:1 x.my counter"
    assert found.identifier(ScopeFormats()) == expected


def test_processes_jobs_and_coordinators_have_scopes_of_their_own(store):
    jvm = (("Status", None), ("JVM", None), ("CPU", None))
    process = Section(Component.TASKMANAGER, {}, [gauge("Load", 0.5, jvm)])
    store.report(report(process))
    store.put(Place(Component.JOBMANAGER, {"host": "d"}), [gauge("numRunningJobs", 1)])
    job = {"host": "d", "job_id": "j", "job_name": "the job"}
    store.put(Place(Component.JM_JOB, job), [gauge("numRestarts", 2)])
    place = {**job, **MAP, "operator_name": "Source: my src -> my map"}
    told = gauge("unassignedSplits", 4, (("coordinator", None), ("enumerator", None)))
    store.put(Place(Component.JM_OPERATOR, place), [told])
    assert store.values(TaskManagerScope("tm-1")) == {"Status.JVM.CPU.Load": "0.5"}
    assert store.values(JobManagerScope()) == {"numRunningJobs": "1"}
    assert store.values(JobScope("j")) == {"numRestarts": "2"}
    coordinator = CoordinatorScope("j", "v")
    wanted = "Source__my_src_->_my_map.coordinator.enumerator.unassignedSplits"
    assert store.values(coordinator) == {wanted: "4"}
    assert store.value(coordinator, wanted) == 4
    assert {one.logical_scope() for one in store.metrics()} == {
        "jobmanager", "jobmanager.job", "jobmanager.job.operator.coordinator.enumerator",
        "taskmanager.Status.JVM.CPU",
    }  # fmt: skip


def test_what_a_taskmanager_reports_is_not_put(store):
    with pytest.raises(ValueError, match="reported by TaskManagers"):
        store.put(Place(Component.TASK, TASK), [])


def test_entities_are_aggregated(store):
    store.report(report(*(task(i, counter("a", i), gauge("t", "text")) for i in range(4))))
    scopes = [SubtaskScope("j", "v", i) for i in range(4)]
    assert store.ids_of(scopes) == ["a", "t"]
    (found,) = store.aggregate(scopes, ["a", "t"], frozenset({Aggregation.SUM, Aggregation.AVG}))
    assert (found.id, dict(found.numbers)) == ("a", {Aggregation.SUM: 6, Aggregation.AVG: 1.5})


def test_a_meter_is_aggregated_by_its_rate(store):
    store.report(report(task(0, Measured("m", MetricType.METER, Rate(2.5, 100)))))
    (found,) = store.aggregate([SubtaskScope("j", "v", 0)], ["m"])
    assert found.numbers[Aggregation.SUM] == 2.5


def test_what_is_forgotten_is_gone(store):
    process = Section(Component.TASKMANAGER, {}, [gauge("a", 1)])
    store.report(report(process, task(0, counter("a", 1))))
    store.forget_taskmanager("tm-1")
    assert store.values(TaskManagerScope("tm-1")) == {}
    assert store.values(VERTEX) == {"0.a": "1"}
    store.forget_job("j")
    assert list(store.metrics(with_ended=True)) == []


def test_a_report_that_cannot_be_read_changes_nothing(store):
    store.report(report(task(0, counter("a", 1))))
    with pytest.raises(ExternalError, match="report of metrics"):
        store.report(report(task(0, counter("a", 2)))[:-1])
    assert store.values(VERTEX) == {"0.a": "1"}


def test_sections_that_nobody_described_are_counted(store):
    encoder = ReportEncoder(PROCESS)
    encoder.encode([task(0, counter("a", 1))])
    store.report(encoder.encode([task(0, counter("a", 2))]))
    assert store.unreadable == 1
    assert store.values(VERTEX) == {}
