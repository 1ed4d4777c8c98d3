"""Where the result of a streaming job waits for its DataFrame."""

import tempfile
from pathlib import Path

import pytest

from penstock.engine.hosting.program.executor import results_folder
from penstock.engine.model.errors import ConfigurationError
from tests.tools.permissions import mode, open_to_others, umask


@pytest.mark.parametrize(
    "configured", ["ck", "./ck", "{here}/ck", "file:{here}/ck", "file://{here}/ck"]
)
def test_a_shared_directory_is_used_as_it_is_named(tmp_path, monkeypatch, configured):
    monkeypatch.chdir(tmp_path)
    folder = Path(results_folder(configured.format(here=tmp_path), shares_files=False))
    assert folder.parent == tmp_path / "ck"
    assert folder.name.startswith("penstock-results-")


def test_each_result_has_a_folder_of_its_own(tmp_path):
    one, other = (results_folder(str(tmp_path), shares_files=False) for _ in range(2))
    assert one != other


@pytest.mark.parametrize("configured", ["{here}/ck", None])
def test_a_folder_of_results_is_this_users_alone(tmp_path, monkeypatch, configured):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    configured = None if configured is None else configured.format(here=tmp_path)
    with umask(0):
        folder = results_folder(configured, shares_files=True)
    assert mode(folder) == 0o700
    assert open_to_others(tmp_path) == {}


def test_no_results_are_kept_where_others_could_change_them(tmp_path):
    tmp_path.chmod(0o770)
    with pytest.raises(ConfigurationError, match=rf"chmod g-w {tmp_path} .*checkpointing\.dir"):
        results_folder(str(tmp_path), shares_files=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("configured", [None, "s3://bucket/ck"])
def test_one_machine_needs_no_directory(configured):
    assert Path(results_folder(configured, shares_files=True)).is_dir()


@pytest.mark.parametrize("configured", [None, "s3://bucket/ck"])
def test_without_a_shared_directory_it_is_refused(configured):
    with pytest.raises(ConfigurationError, match=r"keep results in files.*mounted directory"):
        results_folder(configured, shares_files=False)
