"""What files of a FileSink are called, and whose they are by their names.

`.<attempt prefix>.<token of the sink>.s<subtask>.<n>.<attempt>-<writer>.inprogress` while being written;
`....c<checkpoint>.pending` from the checkpoint on until it completes. The token keeps two sinks on one directory apart; the
prefixes and the attempt tell whose leftovers may be removed. No two writers share a hidden name, not even where a driver that
was taken for dead still has one.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.runtime.sink import WriterContext

IN_PROGRESS: Final = ".inprogress"
PENDING: Final = ".pending"


def unique_name(context: WriterContext, mark: str) -> str:
    """Of all attempts alike where one alone is committed: a job with the same id gives the same names."""
    if context.may_have_rivals:
        name = f"{context.job_prefix}/{context.operator_id}/{context.subtask}"
    else:
        name = f"{context.attempt_prefix}/{mark}"
    digest = hashlib.sha256(name.encode()).hexdigest()
    return str(uuid.UUID(hex=digest[:32]))


def in_progress(base: Path, job_prefix: str, mark: str) -> Iterator[Path]:
    """Hidden files of this job with this mark, in all buckets."""
    if base.is_dir():
        for directory, _subdirectories, names in os.walk(base):
            for name in names:
                if (
                    name.startswith(f".{job_prefix}")
                    and name.endswith(IN_PROGRESS)
                    and f".{mark}." in name
                ):
                    yield Path(directory) / name


def leftovers(base: Path, token: str, context: WriterContext) -> Iterator[Path]:
    """Files that this subtask, or one that it follows, began in an older attempt, or prepared for a checkpoint after the
    restored one.
    """
    # All names of the job start with the shorter of its two prefixes.
    start = f".{min(context.job_prefix, context.attempt_prefix, key=len)}"
    part = r"s(?P<subtask>\d+)\.\d+\.(?P<attempt>\d+)-\w+"
    name = re.compile(
        rf"{re.escape(start)}.*\.{token}\.{part}({IN_PROGRESS}|\.c(?P<id>\d+){PENDING})"
    )
    restored = context.restored_checkpoint_id
    for directory, _subdirectories, names in os.walk(base):
        for found in filter(None, map(name.fullmatch, names)):
            if found["id"] is None:
                is_left = int(found["attempt"]) < context.attempt
            else:
                is_left = restored is None or int(found["id"]) > restored
            if is_left and int(found["subtask"]) % context.parallelism == context.subtask:
                yield Path(directory) / found[0]
