"""Which archives there are, in both layouts of Flink, and what they answer."""

import json
import os
import tracemalloc

import pytest

from penstock.engine.model.errors import ConfigurationError
from penstock.ops.history import library as module
from penstock.ops.history.library import Library

ONE, TWO, THREE = "1" * 32, "2" * 32, "3" * 32
CLUSTER = "0" * 32


def file_of(kind, archive_id, **more):
    key = "jid" if kind == "jobs" else "id"
    line = {key: archive_id, "state": "FINISHED"} | more
    entries = [
        {"path": f"/{kind}/overview", "json": json.dumps({kind: [line]})},
        {"path": f"/{kind}/{archive_id}", "json": json.dumps({"told": archive_id})},
        {"path": f"/{kind}/{archive_id}/plan", "json": '{ "as" : "it stands" }'},
        {"path": "/config", "json": '{"nobody": "asks"}'},
    ]
    return json.dumps({"archive": entries})


def put(path, text, at_s=1000):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (at_s, at_s))


def job(folder, job_id, at_s=1000, **more):
    put(folder / job_id, file_of("jobs", job_id, **more), at_s)


def application(folder, *job_ids, app_id=TWO):
    place = folder / CLUSTER / "applications" / app_id
    for job_id in job_ids:
        put(place / "jobs" / job_id, file_of("jobs", job_id))
    put(place / "application-summary", file_of("applications", app_id))


def opened(*folders, **more):
    made = Library([str(folder) for folder in folders], **more)
    made.refresh()
    return made


def ids(library):
    return [one["id"] for one in json.loads(library.answer("/jobs"))["jobs"]]


def test_an_archive_answers_as_it_stands(tmp_path):
    job(tmp_path, ONE)
    library = opened(tmp_path)
    assert json.loads(library.answer("/jobs/overview"))["jobs"] == [
        {"jid": ONE, "state": "FINISHED"}
    ]
    assert json.loads(library.answer("/jobs")) == {"jobs": [{"id": ONE, "status": "FINISHED"}]}
    assert library.answer(f"/jobs/{ONE}/plan") == b'{ "as" : "it stands" }'


@pytest.mark.parametrize(
    "path", ["/", "/config", f"/jobs/{TWO}", f"/jobs/{ONE}/", f"/jobs/{ONE}/x", "/overview", "/x"]
)
def test_what_no_archive_has_is_not_answered(tmp_path, path):
    job(tmp_path, ONE)
    assert opened(tmp_path).answer(path) is None


def test_jobs_by_application(tmp_path):
    application(tmp_path, TWO, THREE)
    job(tmp_path, ONE)
    library = opened(tmp_path)
    assert set(ids(library)) == {ONE, TWO, THREE}
    assert json.loads(library.answer("/applications/overview"))["applications"][0]["id"] == TWO
    assert json.loads(library.answer(f"/applications/{TWO}")) == {"told": TWO}
    assert json.loads(library.answer(f"/jobs/{TWO}")) == {"told": TWO}


def test_an_application_counts_when_its_summary_is_there(tmp_path):
    put(tmp_path / CLUSTER / "applications" / TWO / "jobs" / ONE, file_of("jobs", ONE))
    library = opened(tmp_path)
    assert ids(library) == []
    application(tmp_path, ONE)
    library.refresh()
    assert ids(library) == [ONE]


def test_a_folder_of_a_cluster_without_applications_hides_nothing(tmp_path):
    (tmp_path / CLUSTER).mkdir()
    application(tmp_path / "other", ONE)
    job(tmp_path, TWO)
    assert set(ids(opened(tmp_path, tmp_path / "other"))) == {ONE, TWO}


def test_the_newest_job_comes_first(tmp_path):
    for job_id, at_s in ((TWO, 2000), (ONE, 3000), (THREE, 1000)):
        job(tmp_path, job_id, at_s)
    assert ids(opened(tmp_path)) == [ONE, TWO, THREE]


def test_archives_come_change_and_go(tmp_path):
    library = opened(tmp_path)
    assert ids(library) == []
    job(tmp_path, ONE, state="RUNNING")
    assert library.refresh() == 1
    assert library.answer(f"/jobs/{ONE}") is not None
    job(tmp_path, ONE, at_s=2000, state="FAILED!")
    library.refresh()
    assert json.loads(library.answer("/jobs"))["jobs"][0]["status"] == "FAILED!"
    (tmp_path / ONE).unlink()
    assert library.refresh() == 0
    assert library.answer(f"/jobs/{ONE}") is None


def test_an_archive_is_read_again_only_when_it_has_changed(tmp_path, monkeypatch):
    job(tmp_path, ONE)
    library = opened(tmp_path)
    monkeypatch.setattr(module, "read_archive", pytest.fail)
    assert library.refresh() == 1


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"archive": []}',
        file_of("jobs", TWO),
        json.dumps({"archive": [{"path": "/jobs/overview", "json": '{"jobs": []}'}]}),
        json.dumps({"archive": [{"path": "/jobs/overview", "json": "[" * 100_000}]}),
        file_of("jobs", ONE, duration=float("nan")),
        file_of("jobs", ONE, tasks=7),
        file_of("jobs", ONE, name={"a": 1}),
        "\0" * 5000,
    ],
    ids=[
        "half", "empty", "of another job", "of no job", "deep", "a number that is none",
        "no counts", "no name", "a sparse file",
    ],
)  # fmt: skip
def test_a_bad_archive_is_named_once_and_skipped_until_it_has_changed(tmp_path, caplog, text):
    put(tmp_path / ONE, text)
    job(tmp_path, THREE)
    library = opened(tmp_path)
    library.refresh()
    assert ids(library) == [THREE]
    assert caplog.text.count(f"archive={tmp_path / ONE} SKIPPED") == 1
    damaged = json.loads(library.answer("/archives/damaged"))
    (one,) = damaged["archives"]
    assert (damaged["total"], one["file"]) == (1, str(tmp_path / ONE))
    assert one["cause"] in caplog.text
    job(tmp_path, ONE, at_s=2000)
    library.refresh()
    assert ids(library) == [ONE, THREE]
    assert json.loads(library.answer("/archives/damaged")) == {"total": 0, "archives": []}


def test_a_file_that_is_too_large_or_no_archive_is_not_read(tmp_path):
    """Each has more bytes than this machine may give: to read it would end the server."""
    for name, size in ((ONE, (1 << 30) - 1), (TWO, 1 << 42)):
        with open(tmp_path / name, "wb") as file:
            file.truncate(size)
    job(tmp_path, THREE)
    tracemalloc.start()
    library = opened(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ids(library) == [THREE]
    assert json.loads(library.answer("/archives/damaged"))["total"] == 2
    assert peak < 50 << 20


def test_a_damaged_archive_is_known_while_its_folder_cannot_be_reached(tmp_path):
    put(tmp_path / "there" / ONE, "{")
    library = opened(tmp_path / "there")
    (tmp_path / "there").rename(tmp_path / "away")
    library.refresh()
    assert json.loads(library.answer("/archives/damaged"))["total"] == 1


def test_files_of_other_names_are_not_looked_at(tmp_path, caplog):
    for name in ("readme.txt", f".{ONE}.part", "A" * 32):
        put(tmp_path / name, "{")
    assert ids(opened(tmp_path)) == []
    assert caplog.text == ""


def test_a_folder_that_is_not_there_is_named_once(tmp_path, caplog):
    job(tmp_path / "there", ONE)
    library = opened(tmp_path / "there", tmp_path / "later")
    library.refresh()
    assert caplog.text.count("NOT LISTED") == 1
    job(tmp_path / "later", TWO)
    library.refresh()
    assert set(ids(library)) == {ONE, TWO}


def test_a_folder_that_cannot_be_reached_shows_what_it_had(tmp_path):
    job(tmp_path / "there", ONE)
    library = opened(tmp_path / "there")
    (tmp_path / "there").rename(tmp_path / "away")
    assert library.refresh() == 1


def test_the_newer_archive_of_a_job_counts(tmp_path):
    job(tmp_path / "a", ONE, at_s=1000, state="FAILED")
    job(tmp_path / "b", ONE, at_s=2000, state="FINISHED")
    for folders in (("a", "b"), ("b", "a")):
        library = opened(*(tmp_path / name for name in folders))
        assert json.loads(library.answer("/jobs"))["jobs"] == [{"id": ONE, "status": "FINISHED"}]


def test_older_jobs_of_a_folder_are_removed_when_there_are_too_many(tmp_path):
    for job_id, at_s in ((ONE, 1000), (TWO, 3000), (THREE, 2000)):
        job(tmp_path / "a", job_id, at_s)
    job(tmp_path / "b", "b" * 32, 500)
    application(tmp_path / "a", "c" * 32, app_id="d" * 32)
    put(tmp_path / "a" / ("e" * 32), "{", 100)
    library = opened(tmp_path / "a", tmp_path / "b", retained_jobs=2)
    assert set(ids(library)) == {TWO, THREE, "b" * 32, "c" * 32}
    assert not (tmp_path / "a" / ONE).exists()
    assert (tmp_path / "a" / ("e" * 32)).exists()  # It may be something else.


@pytest.mark.parametrize("number", [0, -2])
def test_numbers_of_jobs_that_make_no_sense_are_refused(tmp_path, number):
    with pytest.raises(ConfigurationError, match="retained-jobs"):
        Library([str(tmp_path)], number)


@pytest.mark.parametrize("uri", ["nowhere://host/archive", ""])
def test_an_unknown_file_system_is_refused(uri):
    with pytest.raises(ConfigurationError, match="folder of archives"):
        Library([uri])


def test_archives_are_read_by_uri_too(tmp_path):
    job(tmp_path, ONE)
    assert ids(opened(f"file://{tmp_path}")) == [ONE]


def test_few_archives_are_kept_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_CACHE_BYTES", 1)
    for job_id in (ONE, TWO):
        job(tmp_path, job_id)
    library = opened(tmp_path)
    for job_id in (ONE, TWO, ONE):
        assert json.loads(library.answer(f"/jobs/{job_id}")) == {"told": job_id}
        assert len(library.cache) == 1
