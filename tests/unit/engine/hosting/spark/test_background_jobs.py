"""What TaskManagers import Penstock from: in local mode the driver's own files, elsewhere an archive."""

import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.engine.hosting.shipping.package_archive import package_archive
from penstock.engine.hosting.spark import background_jobs, executor_task
from penstock.engine.hosting.spark.background_jobs import package_for
from penstock.engine.model.own_places import PACKAGE_FOLDER, is_ours_here


def context(master):
    return SimpleNamespace(master=master, broadcast=lambda data: ("broadcast", data))


ARCHIVE = ("broadcast", package_archive())


@pytest.fixture
def with_bytecode(tmp_path, monkeypatch):
    """Also where the tests' own Python keeps none."""
    monkeypatch.setattr(sys, "pycache_prefix", None)
    source = tmp_path / "penstock" / "__init__.py"
    kept = Path(importlib.util.cache_from_source(source))
    kept.parent.mkdir(parents=True)
    kept.touch()
    monkeypatch.setattr(background_jobs, "penstock", SimpleNamespace(__file__=str(source)))


@pytest.mark.usefixtures("with_bytecode")
@pytest.mark.parametrize("master", ["local", "local[*]", "local[4]", "local[2,3]"])
def test_in_local_mode_it_is_the_folder(master):
    assert package_for(context(master)) == PACKAGE_FOLDER


@pytest.mark.usefixtures("with_bytecode")
@pytest.mark.parametrize(
    "master", ["local-cluster[2,1,1024]", "spark://host:7077", "yarn", "k8s://host"]
)
def test_elsewhere_it_is_an_archive(master):
    assert package_for(context(master)) == ARCHIVE


@pytest.mark.usefixtures("with_bytecode")
def test_where_python_keeps_no_bytecode_it_is_an_archive(monkeypatch, tmp_path):
    """Else each TaskManager would compile all of it."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    assert package_for(context("local[2]")) == ARCHIVE
    monkeypatch.setattr(sys, "pycache_prefix", None)
    read_only = SimpleNamespace(__file__=str(tmp_path / "other" / "__init__.py"))
    monkeypatch.setattr(background_jobs, "penstock", read_only)
    assert package_for(context("local[2]")) == ARCHIVE


def test_a_folder_that_cannot_be_linked_leaves_nothing(monkeypatch, tmp_path):
    def refused(*_):
        raise OSError("no links here")

    monkeypatch.setattr(os, "symlink", refused)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    paths = list(sys.path)
    with pytest.raises(OSError, match="no links here"):
        executor_task.with_package(PACKAGE_FOLDER, pytest.fail)
    assert not os.listdir(tmp_path)
    assert sys.path == paths


def test_the_folder_serves_as_an_archive_does_and_leaves_nothing():
    modules = dict(sys.modules)

    def look(path):
        module = importlib.import_module("penstock.engine.model.ids")
        return path, module.__file__, module.ResourceId.__module__, sys.path[0]

    path, file, name, first = executor_task.with_package(PACKAGE_FOLDER, look)
    assert file == os.path.join(path, "penstock", "engine", "model", "ids.py")
    assert first == path
    assert name == "penstock.engine.model.ids"
    assert not is_ours_here(file), "of another process"
    assert not os.path.exists(path)
    assert sys.modules == modules
    assert path not in sys.path
    assert not [place for place in sys.path_importer_cache if place.startswith(path)]
