"""Where a copy of a fixture lies; and which tests need the Python that wrote it."""

import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
WRITTEN_BY = (3, 11)
"""The functions in the high-availability entry are bytecode of this Python, which no other one may run."""
collect_ignore = [] if sys.version_info[:2] == WRITTEN_BY else ["test_takeover.py"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a copy of a fixture: all paths in it are relative."""
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o700)

    def copied(name: str) -> Path:
        shutil.copytree(HERE / name, tmp_path, dirs_exist_ok=True)
        for path in [tmp_path, *tmp_path.rglob("*")]:
            path.chmod(0o700 if path.is_dir() else 0o600)  # what others may write is not unpickled
        return tmp_path

    return copied
