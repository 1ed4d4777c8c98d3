"""The folder in which a job keeps results that its program reads back as files. Knows no job."""

from __future__ import annotations

import atexit
import secrets
import shutil
import tempfile
from typing import Final

from penstock.hosting.file_systems import joined, local_path
from penstock.hosting.private_files import NotPrivate, make_folder
from penstock.model.errors import ConfigurationError

_PREFIX: Final = "penstock-results-"


def results_folder(configured: str | None, *, shares_files: bool) -> str:
    """Make a folder for results that this process reads back. It is removed when this process ends.

    It is this user's alone. Raises: ConfigurationError: driver and executors share no directory,
    other users may write to it, or it cannot be made.
    """
    name = f"{_PREFIX}{secrets.token_hex(8)}"
    folder = None if configured is None else local_path(configured)
    if folder is None and not shares_files:
        raise ConfigurationError(
            "to_spark of a streaming job and cache() keep results in files, but this driver "
            "and the executors share no directory: execution.checkpointing.dir is "
            f"{configured!r}. Set it to a mounted directory. In runtime mode BATCH, to_spark "
            "needs no directory."
        )
    own = f"{tempfile.gettempdir()}/{name}" if folder is None else joined(folder, name)
    try:
        make_folder(own)
    except (OSError, NotPrivate) as error:
        raise ConfigurationError(
            f"results cannot be kept in {own!r}: {error}. The place is set by "
            "execution.checkpointing.dir; without it, by TMPDIR."
        ) from error
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return own
