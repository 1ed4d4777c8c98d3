"""Archives of jobs in an object store: written and removed without a trace of their folders."""

import pytest

from penstock.engine.model.ids import JobId
from penstock.ops.history.library import ArchiveExists, Library, read_archive, write_archive

ONE, TWO = JobId("1" * 32), JobId("2" * 32)


def entries(job_id):
    line = {"jid": job_id, "state": "FINISHED", "start-time": 1}
    return [("/jobs/overview", {"jobs": [line]}), (f"/jobs/{job_id}", {"told": job_id})]


def test_an_archive_is_one_object_under_its_own_name(object_store):
    place = write_archive(object_store.uri("deep/archive"), ONE, entries(ONE))
    assert place == object_store.uri(f"deep/archive/{ONE}")
    assert object_store.objects() == [f"deep/archive/{ONE}"]
    assert read_archive(object_store.read(f"deep/archive/{ONE}")).keys() == {
        "/jobs/overview",
        f"/jobs/{ONE}",
    }
    with pytest.raises(ArchiveExists):
        write_archive(object_store.uri("deep/archive"), ONE, entries(TWO))
    assert object_store.objects() == [f"deep/archive/{ONE}"]


def test_an_archive_that_fails_leaves_nothing(object_store):
    def broken():
        yield from entries(ONE)
        raise SystemError("the job is gone")

    with pytest.raises(SystemError):
        write_archive(object_store.uri("archive"), ONE, broken())
    assert object_store.objects() == []


def test_archives_that_are_too_many_go(object_store):
    uri = object_store.uri("archive")
    for job_id in (ONE, TWO):
        write_archive(uri, job_id, entries(job_id))
    library = Library([uri], retained_jobs=1)
    library.refresh()
    assert len(object_store.objects()) == 1
    assert library.answer("/jobs/overview") is not None
