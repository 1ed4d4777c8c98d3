"""Who imports a package that was not shipped and is not there is told which, and what to do."""

import importlib
import importlib.util
import json
import sys

import pytest

from penstock.engine.hosting.jobmanager.ha import packed_job
from penstock.engine.hosting.shipping import missing_packages
from penstock.engine.hosting.shipping.missing_packages import FILE
from penstock.engine.hosting.taskmanager.user_modules import SharedModules
from penstock.ops.session.modules import ModuleSpaces
from tests.tools.hosting.module_archives import archive_of

NEEDED = {"zippy_of_a_test": "zippy-of-a-test==1.2", "compiled_of_a_test": ""}
ARCHIVE = archive_of({FILE: json.dumps(NEEDED), "helper_of_a_test.py": "import zippy_of_a_test"})


@pytest.fixture
def told():
    found = missing_packages.install([b"", archive_of({"x.py": ""}), ARCHIVE])
    assert len(found) == 1
    yield
    missing_packages.uninstall(found)
    assert not set(found) & set(sys.meta_path)


def test_a_distribution_is_named_with_what_to_do(told):
    with pytest.raises(ModuleNotFoundError) as raised:
        importlib.import_module("zippy_of_a_test")
    text = str(raised.value)
    assert raised.value.name == "zippy_of_a_test"
    assert "'zippy_of_a_test'" in text
    assert "Install zippy-of-a-test==1.2 on the executors" in text
    assert "set_python_requirements" in text
    assert sys.executable in text


def test_what_is_compiled_and_has_no_distribution_is_named(told):
    with pytest.raises(ModuleNotFoundError, match="has compiled modules.*set_python_requirements"):
        importlib.import_module("compiled_of_a_test")


def test_a_package_that_is_there_is_imported(told, tmp_path, monkeypatch):
    (tmp_path / "zippy_of_a_test.py").write_text("VALUE = 3")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert importlib.import_module("zippy_of_a_test").VALUE == 3
    del sys.modules["zippy_of_a_test"]


def test_asking_whether_a_package_is_there_is_no_error(told):
    assert importlib.util.find_spec("zippy_of_a_test") is None
    assert importlib.util.find_spec("never_named_of_a_test") is None


def test_a_program_may_go_on_without_it(told):
    try:
        import zippy_of_a_test
    except ImportError:
        zippy_of_a_test = None
    assert zippy_of_a_test is None


def test_a_taskmanager_tells_it_as_long_as_it_has_the_modules():
    modules = SharedModules()
    modules.install(ARCHIVE)
    try:
        with pytest.raises(ModuleNotFoundError, match=r"zippy-of-a-test==1\.2"):
            importlib.import_module("helper_of_a_test")
    finally:
        modules.close()
        sys.path.remove(next(path for path in sys.path if "penstock-modules-" in path))
    with pytest.raises(ModuleNotFoundError) as raised:
        importlib.import_module("zippy_of_a_test")
    assert "1.2" not in str(raised.value)


def test_a_session_tells_it_of_the_job():
    spaces = ModuleSpaces()
    spaces.install()
    try:
        with (
            pytest.raises(ModuleNotFoundError, match=r"zippy-of-a-test==1\.2"),
            spaces.open("a" * 32, ARCHIVE, b"N."),
        ):
            importlib.import_module("zippy_of_a_test")
    finally:
        spaces.uninstall()


def test_a_driver_that_takes_a_job_over_tells_it(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    packed_job.make_importable("a" * 32, ARCHIVE, b"N.")
    with pytest.raises(ModuleNotFoundError, match=r"zippy-of-a-test==1\.2"):
        importlib.import_module("zippy_of_a_test")
