"""Modules of several jobs in one process: each job finds its own, and none finds another one's."""

import pickle
import sys
import threading

import pytest

from penstock.engine.hosting.reporting.logs.driver import thread_belongs_to
from penstock.engine.model.errors import ConfigurationError
from penstock.ops.session.modules import ModuleSpaces
from tests.tools.hosting.module_archives import archive_of

A, B = "a" * 32, "b" * 32
NAMES = ("helpers_of_a_job", "source_of_a_job", "package_of_a_job")


@pytest.fixture
def spaces():
    made = ModuleSpaces()
    made.install()
    yield made
    made.uninstall()
    assert not [name for name in sys.modules if name.partition(".")[0] in NAMES]


def reference(module, name):
    """What pickling an object by its module and name gives, without that module."""
    return f"c{module}\n{name}\n.".encode()


def opened(spaces, job_id, files, pickled):
    with spaces.open(job_id, archive_of(files), pickled):
        return pickle.loads(pickled)


def test_what_was_pickled_finds_the_jobs_own_module(spaces):
    files = {"helpers_of_a_job.py": "VALUE = 1"}
    assert opened(spaces, A, files, reference("helpers_of_a_job", "VALUE")) == 1


def test_modules_of_one_name_that_this_process_does_not_need_are_no_clash(spaces):
    """As for functions of tasks, which import them in processes of their own."""
    for job_id, value in ((A, 1), (B, 2)):
        assert opened(spaces, job_id, {"helpers_of_a_job.py": f"VALUE = {value}"}, b"N.") is None
    assert "helpers_of_a_job" not in sys.modules


@pytest.mark.parametrize("way", ["itself", "through another module"])
def test_a_different_module_of_a_name_in_use_is_refused_before_it_is_imported(spaces, way):
    wanted = reference("helpers_of_a_job", "VALUE")
    opened(spaces, A, {"helpers_of_a_job.py": "VALUE = 1"}, wanted)
    other = {"helpers_of_a_job.py": "raise SystemError('imported')"}
    if way != "itself":
        other["source_of_a_job.py"] = "from helpers_of_a_job import VALUE"
        wanted = reference("source_of_a_job", "VALUE")
    with pytest.raises(ConfigurationError, match=f"'helpers_of_a_job', and job {A}"):
        opened(spaces, B, other, wanted)
    assert sys.modules["helpers_of_a_job"].VALUE == 1


def test_a_changed_module_comes_after_the_end_of_the_job_that_had_the_other(spaces):
    wanted = reference("helpers_of_a_job", "VALUE")
    assert opened(spaces, A, {"helpers_of_a_job.py": "VALUE = 1"}, wanted) == 1
    spaces.close(A)
    assert opened(spaces, B, {"helpers_of_a_job.py": "VALUE = 2"}, wanted) == 2


def test_the_same_module_is_shared_and_stays_until_its_last_job_has_ended(spaces):
    files = {"package_of_a_job/__init__.py": "", "package_of_a_job/late.py": "VALUE = 1"}
    wanted = reference("package_of_a_job", "__name__")
    opened(spaces, A, files, wanted)
    shared = sys.modules["package_of_a_job"]
    opened(spaces, B, files, wanted)
    spaces.close(A)
    assert sys.modules["package_of_a_job"] is shared
    from package_of_a_job.late import VALUE  # B's code imports it only now

    assert VALUE == 1
    spaces.close(B)
    assert "package_of_a_job" not in sys.modules


def test_a_late_import_finds_the_module_of_the_threads_job(spaces):
    for job_id, value in ((A, 1), (B, 2)):
        opened(spaces, job_id, {"helpers_of_a_job.py": f"VALUE = {value}"}, b"N.")
    found = []

    def late():
        thread_belongs_to(B)
        import helpers_of_a_job

        found.append(helpers_of_a_job.VALUE)

    thread = threading.Thread(target=late)
    thread.start()
    thread.join()
    assert found == [2]


def test_modules_that_the_session_has_anyway_come_first(spaces):
    files = {"json.py": "raise SystemError('imported')"}
    assert opened(spaces, A, files, reference("json", "__name__")) == "json"


def test_what_cannot_be_opened_leaves_nothing_behind(spaces):
    files = {"helpers_of_a_job.py": "raise ValueError('broken here')"}
    with pytest.raises(ValueError, match="broken here"):
        opened(spaces, A, files, reference("helpers_of_a_job", "VALUE"))
    files = {"helpers_of_a_job.py": "VALUE = 3"}
    assert opened(spaces, B, files, reference("helpers_of_a_job", "VALUE")) == 3
