"""Where the result of a streaming job waits for its DataFrame."""

from pathlib import Path

import pytest

from penstock.hosting.program.results_folder import results_folder
from penstock.model.errors import ConfigurationError


@pytest.mark.parametrize(
    "configured", ["ck", "./ck", "{here}/ck", "file:{here}/ck", "file://{here}/ck"]
)
def test_a_shared_directory_is_used_as_it_is_named(tmp_path, monkeypatch, configured):
    monkeypatch.chdir(tmp_path)
    folder = Path(results_folder(configured.format(here=tmp_path), shares_files=False))
    assert folder.parent == tmp_path / "ck"
    assert folder.name.startswith("penstock-results-")


def test_each_result_has_a_folder_of_its_own():
    assert results_folder("/mnt/ck", shares_files=False) != results_folder(
        "/mnt/ck", shares_files=False
    )


@pytest.mark.parametrize("configured", [None, "s3://bucket/ck"])
def test_one_machine_needs_no_directory(configured):
    assert Path(results_folder(configured, shares_files=True)).is_dir()


@pytest.mark.parametrize("configured", [None, "s3://bucket/ck"])
def test_without_a_shared_directory_it_is_refused(configured):
    with pytest.raises(ConfigurationError, match=r"keep results in files.*mounted directory"):
        results_folder(configured, shares_files=False)
