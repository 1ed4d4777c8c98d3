"""The file of an archive: one JSON object with a list of paths and answers. An answer is JSON, written as a text.

Knows no job. Source: Flink FsJsonArchivist, ArchivedJson.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Iterable
from typing import Any, Final

from penstock.engine.hosting.os.clock import give_way
from penstock.engine.hosting.os.file_systems import CheckpointIoError, Files, local_path, open_files
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.ids import JobId
from penstock.ops.rest.pieces import pieces_of_archive

_HEX: Final = re.compile(r"[0-9a-f]{32}")
_OWN_MODE: Final = 0o600
_OTHERS_READ: Final = 0o044


class ArchiveExists(ExternalError):
    """The job has an archive already. It stays as it is."""


class ArchiveDamaged(ExternalError):
    """A file is no archive, or not a whole one."""


def is_id(name: str) -> bool:
    """Return whether a file of this name can be the archive of a job, and a folder of this name that of an application."""
    return _HEX.fullmatch(name) is not None


def write_archive(directory: str, job_id: JobId, entries: Iterable[tuple[str, Any]]) -> str:
    """Write `<directory>/<job id>`: under another name first, so that nobody reads half of it. Returns: its path or URI.

    Whoever may list the folder may read the archive. A folder that is made here is this user's alone.
    Raises: ArchiveExists. ConfigurationError: the directory is of no known file system. ExternalError: it could not be written;
    then nothing is left of it.
    """
    files, folder = open_files(directory, is_checked=False)
    folder = folder.rstrip("/")
    target, part = f"{folder}/{job_id}", f"{folder}/.{job_id}.{secrets.token_hex(4)}"
    if any(name == job_id for name, _ in files.list(folder)):
        raise ArchiveExists(f"{files.uri(target)} exists")
    try:
        if files.is_object_store:  # To rename an object is to copy it, and leaves a trace in S3.
            files.put_new(target, _joined(entries))
            return files.uri(target)
        _write(files, part, entries)
        if local_path(directory) is not None:
            _let_read(part, folder)
        files.publish(part, target)
    except BaseException as error:
        with contextlib.suppress(ExternalError):
            files.remove(part)
        if isinstance(error.__cause__, FileExistsError):
            raise ArchiveExists(f"{files.uri(target)} exists") from error
        raise
    return files.uri(target)


def _joined(entries: Iterable[tuple[str, Any]]) -> bytes:
    pieces = []
    for piece in pieces_of_archive(entries):
        pieces.append(piece)
        give_way()
    return b"".join(pieces)


def _write(files: Files, path: str, entries: Iterable[tuple[str, Any]]) -> None:
    sink = files.create(path)
    try:
        for piece in pieces_of_archive(entries):
            sink.write(piece)
            give_way()
    finally:
        sink.close()


def _let_read(path: str, folder: str) -> None:
    """Let those read the file who may list its folder."""
    try:
        os.chmod(path, _OWN_MODE | os.stat(folder).st_mode & _OTHERS_READ)
    except OSError as error:
        raise CheckpointIoError(f"cannot set the mode of {path}: {error}") from error


def read_archive(data: bytes) -> dict[str, str]:
    """Return the answers of an archive, as JSON texts, by their paths. Raises ArchiveDamaged."""
    try:
        entries = json.loads(data)["archive"]
        found = {entry["path"]: entry["json"] for entry in entries}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArchiveDamaged(
            f"it is no archive, or not a whole one: {type(error).__name__}: {error}"
        ) from error
    if not all(isinstance(text, str) for pair in found.items() for text in pair):
        raise ArchiveDamaged("it is no archive: a path or an answer is no text")
    return found
