"""Where a job keeps results that its program reads back as files. Knows no job."""

from __future__ import annotations

import atexit
import secrets
import shutil
import tempfile
from typing import Final

from penstock.hosting.file_systems import joined, local_path
from penstock.model.errors import ConfigurationError

_PREFIX: Final = "penstock-results-"


def results_folder(configured: str | None, *, shares_files: bool) -> str:
    """A new folder for the results of a job that this process reads back: it goes with this process.

    Raises: ConfigurationError: there is none that driver and executors share.
    """
    name = f"{_PREFIX}{secrets.token_hex(8)}"
    folder = None if configured is None else local_path(configured)
    if folder is None and not shares_files:
        raise ConfigurationError(
            "to_spark of a streaming job and cache() keep results in files, and there is no directory that this driver and the "
            f"executors share: execution.checkpointing.dir is {configured!r}. Set it to a mounted directory. to_spark needs none in "
            "runtime mode BATCH."
        )
    own = tempfile.mkdtemp(prefix=_PREFIX) if folder is None else joined(folder, name)
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return own
