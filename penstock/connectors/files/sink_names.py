"""Names of a FileSink's files, which tell whose files they are.

A file is called `.<attempt prefix>.<token of the sink>.s<subtask>.<n>.<attempt>-<writer>.inprogress` while it is being
written, and `....c<checkpoint>.pending` from its checkpoint on until the checkpoint completes. The token separates two
sinks on one directory; the prefixes and the attempt tell whose leftovers may be removed. No two writers share a hidden
name, not even when a driver that was taken for dead still runs a writer.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator
from typing import Final

from penstock.engine.runtime.sink import WriterContext

IN_PROGRESS: Final = ".inprogress"
PENDING: Final = ".pending"


def unique_name(context: WriterContext, mark: str) -> str:
    """A unique part of final names.

    In BATCH several attempts may run at once and one of them is committed, so all of them get the same name. A job with
    the same id then gives the same names.
    """
    if context.is_batch:
        name = f"{context.job_prefix}/{context.operator_id}/{context.subtask}"
    else:
        name = f"{context.attempt_prefix}/{mark}"
    digest = hashlib.sha256(name.encode()).hexdigest()
    return str(uuid.UUID(hex=digest[:32]))


def in_progress(files: Iterable[str], job_prefix: str, mark: str) -> Iterator[str]:
    """Those of the files that are hidden ones of this job with this mark."""
    for path in files:
        name = path.rpartition("/")[2]
        if name.startswith(f".{job_prefix}") and name.endswith(IN_PROGRESS) and f".{mark}." in name:
            yield path


def leftovers(files: Iterable[str], token: str, context: WriterContext) -> Iterator[str]:
    """Those of the files that are hidden and that nobody will commit, left by this subtask or by subtasks whose work it continues.

    They were begun in an older attempt, or prepared for a checkpoint after the restored one.
    """
    start = f".{context.job_prefix}"
    part = r"s(?P<subtask>\d+)\.\d+\.(?P<attempt>\d+)-\w+"
    # Those of a StreamingFileSink begin with their final name.
    name = re.compile(
        rf"(?:\..*{re.escape(IN_PROGRESS)})?{re.escape(start)}.*\.{token}\.{part}"
        rf"(?:{re.escape(IN_PROGRESS)}|\.c(?P<id>\d+){re.escape(PENDING)})?"
    )
    restored = context.restored_checkpoint_id
    for path in files:
        found = name.fullmatch(path.rpartition("/")[2])
        if found is None:
            continue
        if found["id"] is None:
            is_left = int(found["attempt"]) < context.attempt
        else:
            is_left = restored is None or int(found["id"]) > restored
        if is_left and int(found["subtask"]) % context.parallelism == context.subtask:
            yield path
