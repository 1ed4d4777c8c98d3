"""Code that is shipped lies in files that only this user may read and write."""

import os
import stat
import sys
import tempfile
import zipfile
from types import SimpleNamespace

import pytest
from pyspark import SparkFiles

from penstock.engine.hosting.shipping import worker_imports
from penstock.engine.hosting.shipping.program_files import bring_files
from penstock.engine.hosting.shipping.worker_imports import Archives
from penstock.engine.hosting.spark import executor_task
from penstock.engine.model.own_places import PACKAGE_FOLDER
from penstock.engine.model.program import ProgramSettings
from tests.tools.hosting.module_archives import archive_of
from tests.tools.permissions import open_to_others, umask


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where temporary files are; whatever is put on the import path is taken off it again."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    with umask(0):
        yield tmp_path


def test_penstock_itself(temporary):
    found = {}

    def look(path):
        for place in (path, os.path.dirname(path)):
            found[os.path.basename(place)] = stat.S_IMODE(os.stat(place).st_mode)

    executor_task.with_package(SimpleNamespace(value=b"zip"), look)
    assert sorted(found.values()) == [0o600, 0o700]


def test_penstocks_own_folder(temporary):
    found = {}

    def look(path):
        for place in (path, os.path.dirname(path)):
            found[os.path.basename(place)] = stat.S_IMODE(os.stat(place).st_mode)
        found["files"] = os.listdir(path)

    executor_task.with_package(PACKAGE_FOLDER, look)
    assert found.pop("files") == ["penstock"]
    assert set(found.values()) == {0o700}
    assert not os.listdir(temporary)
    assert os.path.exists(os.path.join(PACKAGE_FOLDER, "__init__.py"))


def test_a_programs_modules(temporary, monkeypatch):
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(temporary))
    contents = b"1", archive_of({"helper.py": ""})
    installed = worker_imports.install(Archives(("a", "b"), SimpleNamespace(value=contents)))
    assert sorted(os.listdir(installed.folder)) == ["a.zip", "b"]
    assert open_to_others(temporary) == {}


def test_a_programs_archives(temporary):
    with umask(0o077), zipfile.ZipFile(temporary / "data.zip", "w") as file:
        file.writestr("data", b"data")
    added = []
    context = SimpleNamespace(listArchives=[], addArchive=added.append)
    bring_files(context, ProgramSettings(python_archives=((str(temporary / "data.zip"), "data"),)))
    (copy,) = (name.partition("#")[0] for name in added)
    assert zipfile.ZipFile(copy).namelist() == ["data"]
    assert open_to_others(temporary) == {}
