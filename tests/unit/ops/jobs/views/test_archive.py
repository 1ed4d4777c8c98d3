"""What an archive keeps (Flink JsonArchivist, FsJobArchivist), in the shapes of a true cluster's answers."""

import json
import re

import pytest

from penstock.engine.model.graph.job_graph import JobType
from penstock.engine.model.job_events import CheckpointRestored
from penstock.engine.model.messages import FailureInfo
from penstock.ops.jobs.failure_record import FailureSeen, FailuresSeen
from penstock.ops.jobs.views.archive import archive_of
from penstock.ops.metrics.history_rings import COARSE, FIGURES, FINE
from tests.conformance.rest.shapes import RECORDED, differences
from tests.tools.observation.job_records import JOB, PLACE, SINK, SOURCE, ToldJob, attempt

ROOT = f"/jobs/{JOB}"
ENVIRONMENT = {"jvm": {"version": "3", "arch": "x", "options": ["-X"]}, "classpath": ["/a"]}
STRICT = {
    "jid", "name", "state", "tasks", "start-time", "end-time", "duration", "last-modification",
    "pending-operators", "jobType", "schedulerType",
}  # fmt: skip
"""Another field, or one of the first four that is lacking, empties the list of all jobs in Flink's history server."""


def ended_job(**more):
    """Two subtasks of each vertex have run twice; ten checkpoints were before the failure."""
    told = ToldJob(configuration={"a": "1"}, user_config={"b": "2"}, **more).registers()
    told.status("RUNNING").runs()
    for number in range(1, 11):
        told.triggers(number, after_ms=1)
        for vertex_id in (SOURCE, SINK):
            for subtask in (0, 1):
                told.acknowledges(number, attempt(vertex_id, subtask), 1)
        told.ends(number, after_ms=1)
    failure = FailureSeen(
        FailureInfo("ValueError", "text"), told.now, "Reduce (1/2)", attempt(SINK), PLACE
    )
    told.tell(FailuresSeen(((failure, ()),))).tell(CheckpointRestored(10, "/chk-10/_metadata"))
    told.runs(number=1)
    for vertex_id in (SOURCE, SINK):
        for subtask in (0, 1):
            told.has(attempt(vertex_id, subtask, 1), records_in=5)
            told.moves(attempt(vertex_id, subtask, 1), "FINISHED")
    return told.status("FINISHED", 7).now_it_is(1)


def archived(job):
    entries = list(archive_of(job, ENVIRONMENT))
    assert len(dict(entries)) == len(entries)
    return dict(entries)


def test_the_paths_of_a_job_with_checkpoints_and_a_restart():
    """Two vertices, two subtasks, two attempts, ten checkpoints."""
    paths = set(archived(ended_job()))
    expected = {"/jobs/overview", ROOT}
    expected |= {
        f"{ROOT}/{name}"
        for name in (
            "config", "plan", "exceptions", "accumulators", "jobmanager/config",
            "jobmanager/environment", "checkpoints", "checkpoints/config", "rescales/config",
            "rescales/overview", "rescales/summary", "rescales/history", "graph", "bottleneck",
            "story", "timeline", "options", "exceptions/groups", "checkpoints/strip", "history",
        )
    }  # fmt: skip
    for vertex_id in (SOURCE, SINK):
        place = f"{ROOT}/vertices/{vertex_id}"
        expected |= {place, f"{place}/subtasktimes", f"{place}/taskmanagers", f"{place}/skew"}
        expected.add(f"{place}/history")
        # Flink's dashboard asks for them, and Flink archives none of them.
        expected |= {f"{place}/watermarks", f"{place}/accumulators"}
        expected.add(f"{place}/subtasks/accumulators")
        for subtask in (0, 1):
            for number in (0, 1):
                one = f"{place}/subtasks/{subtask}/attempts/{number}"
                expected |= {one, f"{one}/accumulators"}
        for number in range(1, 11):
            details = f"{ROOT}/checkpoints/details/{number}"
            expected |= {details, f"{details}/gantt", f"{details}/subtasks/{vertex_id}"}
    assert paths == expected


def recorded(path):
    """The path as it stands in the recorded answers."""
    known = {JOB: "{job}", SOURCE: "{vertex0}", SINK: "{vertex1}"}
    for value, name in known.items():
        path = path.replace(value, name)
    return re.sub(r"details/\d+", "details/{checkpoint}", path)


def compared():
    return sorted(path for path in archived(ended_job()) if recorded(path) in RECORDED)


def test_most_paths_are_recorded():
    assert len({recorded(path) for path in compared()}) >= 22


@pytest.mark.parametrize("path", compared())
def test_an_answer_has_the_shape_of_flinks(path):
    ours = json.loads(json.dumps(archived(ended_job())[path], default=list))
    assert differences(RECORDED[recorded(path)]["body"], ours) == []


def test_the_list_has_this_job_with_the_fields_that_flink_reads():
    (line,) = archived(ended_job())["/jobs/overview"]["jobs"]
    assert line.keys() == STRICT
    assert (line["jid"], line["state"], line["tasks"]["finished"]) == (JOB, "FINISHED", 4)


def test_a_job_without_checkpoints_says_why_it_tells_nothing_of_them():
    told = archived(ToldJob(checkpoints=None).status("FAILED").now_it_is())
    text = f"Checkpointing is not enabled for this job ({JOB})."
    assert told[f"{ROOT}/checkpoints"] == told[f"{ROOT}/checkpoints/config"] == {"errors": [text]}


def test_the_latest_checkpoint_of_a_kind_is_kept_when_the_history_has_forgotten_it():
    told = ToldJob(history_size=1).status("RUNNING").runs()
    for number, kind in ((1, "SAVEPOINT"), (2, "CHECKPOINT")):
        told.triggers(number, kind).ends(number, kind)
    job = told.status("CANCELED").now_it_is()
    assert [one.checkpoint_id for one in job.checkpoints.history] == [2]
    paths = archived(job)
    assert f"{ROOT}/checkpoints/details/1/subtasks/{SINK}" in paths
    assert f"{ROOT}/checkpoints/details/2" in paths


def test_a_job_that_runs_is_told_as_it_is():
    told = archived(ToldJob().status("RUNNING").runs().now_it_is())
    assert told[f"{ROOT}/graph"]["job"]["state"] == "RUNNING"
    assert told[f"{ROOT}/graph"]["nodes"][0]["states"] == {"RUNNING": 2}
    assert told[f"{ROOT}/timeline"]["job"]["spans"][-1]["to"] is None
    assert told[f"{ROOT}/exceptions/groups"]["groups"] == []


def test_a_batch_job_whose_parallelism_is_not_decided_yet():
    told = archived(ToldJob(parallelism=-1, job_type=JobType.BATCH).now_it_is())
    assert json.loads(json.dumps(told, default=list, allow_nan=False))
    source, _ = told[f"{ROOT}/graph"]["nodes"]
    assert (source["states"], source["busy"], source["state"]) == ({}, None, "CREATED")
    assert told[f"{ROOT}/timeline"]["vertices"][0]["spans"] == []
    assert told[f"{ROOT}/vertices/{SINK}/skew"]["total"] == 0


def test_a_job_that_has_ended_says_how_in_a_sentence():
    told = archived(ended_job())
    assert told[f"{ROOT}/bottleneck"]["sentence"] == "The job has ended: FINISHED."
    assert told[f"{ROOT}/checkpoints/details/3/gantt"]["total"] == 4


@pytest.mark.parametrize(
    ("lasted_ms", "resolution", "kept"), [(600_000, FINE, 600), (600_001, COARSE, 360)]
)
def test_figures_over_time_are_those_of_the_last_part(lasted_ms, resolution, kept):
    """Whatever there is."""
    job = ToldJob().status("RUNNING").status("FINISHED", lasted_ms).now_it_is()

    def figures(job, vertex, step):
        assert step is resolution
        return [(number, [1.5] * len(FIGURES)) for number in range(1_000)]

    told = dict(archive_of(job, ENVIRONMENT, figures))
    of_job = told[f"{ROOT}/history"]
    assert of_job["step"] == resolution.step_ms
    assert [one["id"] for one in of_job["vertices"]] == [SOURCE, SINK]
    of_vertex = told[f"{ROOT}/vertices/{SINK}/history"]
    assert of_vertex["timestamps"] == list(range(1_000 - kept, 1_000))
    assert of_vertex["figures"].keys() == set(FIGURES)
    assert of_vertex["figures"]["watermarkLag"][0] == 1.5


def test_a_job_without_figures_over_time():
    told = archived(ended_job())
    assert told[f"{ROOT}/vertices/{SINK}/history"]["timestamps"] == []
