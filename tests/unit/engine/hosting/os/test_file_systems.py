"""A file system that is away is no damage of a checkpoint: what must exist is asked before an absence is believed."""

import importlib.util
import os

import pytest
from pyarrow import fs

from penstock.engine.hosting.os.file_systems import (
    ArrowFiles,
    CheckpointDamaged,
    CheckpointIoError,
    LocalFiles,
    arrow_system,
    check_client,
    open_files,
)
from penstock.engine.model.errors import ConfigurationError
from tests.tools.hosting.away import SystemThatIsAway


@pytest.fixture
def gone(tmp_path, monkeypatch):
    """This process works in a folder that has been removed."""
    folder = tmp_path / "container"
    folder.mkdir()
    before = os.getcwd()
    os.chdir(folder)
    folder.rmdir()
    yield tmp_path
    os.chdir(before)


@pytest.mark.parametrize("is_checked", [True, False])
def test_absolute_paths_need_no_working_directory(gone, is_checked):
    files = LocalFiles(is_checked=is_checked)
    path = str(gone / "checkpoints" / "chk-1" / "state")
    with_content = files.create(path)
    with_content.write(b"state")
    with_content.close()
    assert files.read(path) == b"state"
    assert list(files.list(str(gone / "checkpoints"))) == [("chk-1", True)]
    files.put_new(str(gone / "checkpoints" / "chk-1" / "other"), b"x")
    files.remove(path)
    assert [name for name, _ in files.list(os.path.dirname(path))] == ["other"]


def test_without_a_working_directory_a_relative_path_is_no_damage(gone):
    with pytest.raises(CheckpointIoError, match="cannot read state"):
        LocalFiles().read("state")


def test_a_missing_file_of_a_checkpoint_is_damage(tmp_path):
    (tmp_path / "job" / "chk-1").mkdir(parents=True)
    with pytest.raises(CheckpointDamaged, match="state is missing"):
        LocalFiles().read(str(tmp_path / "job" / "chk-1" / "state"))
    with pytest.raises(CheckpointDamaged, match="state is missing"):
        LocalFiles().read(str(tmp_path / "job" / "chk-2" / "state"))


def test_where_all_checkpoints_of_a_job_are_missing_the_file_system_is(tmp_path):
    """It may not be mounted."""
    with pytest.raises(CheckpointIoError, match=r"so is the folder .*/job\. Check that the file"):
        LocalFiles().read(str(tmp_path / "job" / "chk-1" / "state"))


def test_a_server_that_answers_that_nothing_is_there_is_away():
    files = ArrowFiles(fs.PyFileSystem(SystemThatIsAway()))
    with pytest.raises(CheckpointIoError, match="so is the folder /checkpoints/job"):
        files.read("/checkpoints/job/chk-1/state")


def test_a_server_that_answers_is_believed(tmp_path):
    files = ArrowFiles(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()))
    (tmp_path / "job").mkdir()
    with pytest.raises(CheckpointDamaged, match="state is missing"):
        files.read("job/chk-1/state")
    assert list(files.list("other")) == []


def test_a_missing_client_of_hdfs_is_a_sentence_with_the_next_step(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(
        ConfigurationError, match=r"'hdfs-native'.* Run pip install 'penstock\[hdfs\]'"
    ):
        open_files("hdfs://host:8020/checkpoints")
    check_client("s3://bucket/checkpoints")


GOOGLE = "gs://anonymous@bucket/folder"


@pytest.mark.parametrize(
    ("uri", "same"),
    [
        (GOOGLE, f"{GOOGLE}?retry_limit_seconds=120"),
        (f"{GOOGLE}?scheme=http", f"{GOOGLE}?scheme=http&retry_limit_seconds=120"),
        (f"{GOOGLE}?retry_limit_seconds=7", f"{GOOGLE}?retry_limit_seconds=7"),
    ],
)
def test_googles_client_tries_again_for_two_minutes_unless_the_uri_says_else(uri, same):
    system, path = arrow_system(uri)
    assert system.equals(fs.FileSystem.from_uri(same)[0])
    assert not system.equals(fs.FileSystem.from_uri(f"{GOOGLE}?retry_limit_seconds=900")[0])
    assert path == "bucket/folder"
