"""Jobs that are archived when they have ended, with and without a REST server."""

import json

import pytest

from penstock.common import Types
from penstock.datastream import RuntimeExecutionMode
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.ops.history.library import Library
from penstock.ops.operations import ARCHIVIST
from tests.tools.programs.environments import minicluster_environment

PATIENCE_S = 60.0


def run(folder, function=abs, mode=RuntimeExecutionMode.STREAMING):
    env = minicluster_environment(MiniCluster(2), {"jobmanager.archive.fs.dir": str(folder)})
    env.set_runtime_mode(mode)
    numbers = env.from_collection([1, 2, 3], Types.INT())
    numbers.map(function, output_type=Types.INT()).print()
    try:
        return env.execute("archived")
    finally:
        assert ARCHIVIST.finish(PATIENCE_S)


def archived(folder):
    library = Library([str(folder)])
    library.refresh()
    (job,) = json.loads(library.answer("/jobs/overview"))["jobs"]

    def ask(path):
        return json.loads(library.answer(f"/jobs/{job['jid']}{path}"))

    return job, ask


def fails(number):
    raise ValueError("planned failure")


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
def test_a_finished_job(tmp_path, mode):
    result = run(tmp_path, mode=mode)
    job, ask = archived(tmp_path)
    assert (job["jid"], job["name"]) == (str(result.get_job_id()), "archived")
    assert (job["state"], job["jobType"]) == ("FINISHED", mode.name)
    assert job["tasks"]["finished"] == job["tasks"]["total"] > 0
    vertices = ask("")["vertices"]
    assert {vertex["status"] for vertex in vertices} == {"FINISHED"}
    for vertex in vertices:
        attempts = ask(f"/vertices/{vertex['id']}")["subtasks"]
        assert {one["status"] for one in attempts} == {"FINISHED"}
        assert ask(f"/vertices/{vertex['id']}/subtasks/0/attempts/0") == attempts[0]


def test_a_failed_job_with_what_ended_it(tmp_path):
    with pytest.raises(Exception, match="planned failure"):
        run(tmp_path, fails)
    job, ask = archived(tmp_path)
    assert job["state"] == "FAILED"
    (entry,) = ask("/exceptions")["exceptionHistory"]["entries"]
    assert "planned failure" in entry["stacktrace"]


def test_a_folder_that_cannot_be_written_does_not_change_the_result(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    result = run(tmp_path / "file")
    assert f"job {result.get_job_id()} is not archived" in capsys.readouterr().err
