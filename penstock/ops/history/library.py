"""All archives of some folders, as one history: which jobs there are, and what each archive has.

Knows both layouts of Flink: `<folder>/<job id>`, and `<folder>/<cluster id>/applications/<application id>` with a summary and jobs. An
archive is read when it is new or has changed, and again when somebody asks for it. Any thread may call.
Source: Flink HistoryServerArchiveFetcher; differs: nothing is unpacked to local files, so an archive that is gone is not shown.

The file of an archive: one JSON object with a list of paths and answers. An answer is JSON, written as a text.

Knows no job. Source: Flink FsJsonArchivist, ArchivedJson.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.engine.hosting.os.clock import giving_way, wall_ms
from penstock.engine.hosting.os.file_systems import (
    CheckpointIoError,
    Files,
    arrow_system,
    local_path,
    open_files,
)
from penstock.engine.hosting.os.s3_objects import s3_objects
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.ids import JobId
from penstock.engine.model.options.option import refusal
from penstock.engine.model.options.rest import HistoryServerOptions
from penstock.engine.model.texts.redaction import without_credentials
from penstock.ops.rest.pieces import pieces_of_archive

_HEX: Final = re.compile(r"[0-9a-f]{32}")
_OWN_MODE: Final = 0o600
_OTHERS_READ: Final = 0o044
_PART: Final = re.compile(r"\.[0-9a-f]{32}\.(\d+)\.[0-9a-f]{8}")
"""The name of an archive that is being written: the job, since when in epoch milliseconds, and a random part."""
_DEAD_AFTER_MS: Final = 3_600_000
"""Nobody writes an archive for so long: its driver was killed."""
_MOST_BYTES: Final = 1 << 30
"""Of an archive. One of 10,000 subtasks has 70 MB. To read one takes several times its bytes."""


class ArchiveExists(ExternalError):
    """The job has an archive already. It stays as it is."""


class ArchiveDamaged(ExternalError):
    """A file is no archive, or not a whole one."""


def is_id(name: str) -> bool:
    """Return whether a file of this name can be the archive of a job, and a folder of this name that of an application."""
    return _HEX.fullmatch(name) is not None


def write_archive(directory: str, job_id: JobId, entries: Iterable[tuple[str, Any]]) -> str:
    """Write `<directory>/<job id>`: under another name first, so that nobody reads half a file. Returns: its path or URI.

    Whoever may list the folder may read the archive. A folder that is made here is this user's alone. What a killed driver has left of an
    archive is removed.
    Raises: ArchiveExists. ConfigurationError: the directory is of no known file system. ExternalError: it could not be written;
    then no file is left.
    """
    files, folder = open_files(directory, is_checked=False)
    folder, now_ms = folder.rstrip("/"), wall_ms()
    target, part = f"{folder}/{job_id}", f"{folder}/.{job_id}.{now_ms}.{secrets.token_hex(4)}"
    names = [name for name, is_folder in files.list(folder) if not is_folder]
    for name in names:
        begun = _PART.fullmatch(name)
        if begun is not None and int(begun[1]) < now_ms - _DEAD_AFTER_MS:
            files.remove(f"{folder}/{name}")
    if job_id in names:
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
    return b"".join(giving_way(pieces_of_archive(entries)))


def _write(files: Files, path: str, entries: Iterable[tuple[str, Any]]) -> None:
    sink = files.create(path)
    try:
        for piece in giving_way(pieces_of_archive(entries)):
            sink.write(piece)
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


_LOG: Final = logging.getLogger(__name__)
_CACHE_BYTES: Final = 64 << 20
_PATH: Final = re.compile(r"/(jobs|applications)/([0-9a-f]{32})(/.*)?")
_LISTS: Final = ("jobs", "applications")
_BEGIN_BYTES: Final = 1024
_MOST_NAMED: Final = 100


@dataclass(frozen=True, slots=True)
class _File:
    """A file as a listing shows it. `place`: the folder of archives as it was given. `is_legacy`: it lies directly in that folder."""

    place: str
    system: Any = field(compare=False)
    path: str
    size: int
    modified_ns: int
    is_legacy: bool = False

    def data(self) -> bytes:
        """Raises: OSError. ArchiveDamaged: it begins with something else, or is too large."""
        if self.size > _MOST_BYTES:
            raise ArchiveDamaged(f"it has {self.size} bytes, and at most {_MOST_BYTES} are read")
        with self.system.open_input_file(self.path) as file:
            begin: bytes = file.read(_BEGIN_BYTES)
            if not begin.lstrip().startswith(b"{"):
                raise ArchiveDamaged(f"it is no archive: it begins with {begin[:8]!r}")
            rest: bytes = file.read()
            return begin + rest

    def remove(self) -> None:
        """Raises OSError."""
        objects = s3_objects(self.place)
        if objects is not None:
            objects.remove(self.path)
        else:
            self.system.delete_file(self.path)


@dataclass(frozen=True, slots=True)
class _Archive:
    """One archive. `kind`: `jobs` or `applications`. `overview`: its line in the list of all of that kind."""

    kind: str
    archive_id: str
    file: _File
    overview: dict[str, Any]


class Library:
    """Archives by kind and id, newest first. `refresh` looks at the folders; `answer` returns the answer to a REST path."""

    def __init__(self, directories: Sequence[str], retained_jobs: int = -1) -> None:
        """Raises ConfigurationError: a directory is of no known file system, or the number is 0 or below -1."""
        if retained_jobs == 0 or retained_jobs < -1:
            key, wanted = (
                HistoryServerOptions.RETAINED_JOBS.key,
                "-1 (all jobs) or a number above 0",
            )
            raise refusal(key, retained_jobs, wanted)
        self._places = [(uri, *_opened(uri)) for uri in directories]
        self._retained_jobs = retained_jobs
        self._known: dict[_File, _Archive] = {}
        self._damaged: dict[_File, str] = {}
        self._complaints: set[object] = set()
        self._shelf: dict[tuple[str, str], _Archive] = {}
        self.cache: OrderedDict[_File, dict[str, str]] = OrderedDict()
        self._lock = threading.Lock()

    def refresh(self) -> int:
        """Look at all folders. Returns: how many jobs there are. A folder that cannot be listed shows what it had."""
        known: list[_Archive] = []
        former, self._damaged = self._damaged, {}
        for uri, system, path in self._places:
            try:
                files = list(_files(uri, system, path))
            except OSError as error:
                self._complain(uri, "archives=%s NOT LISTED cause=%s", uri, error)
                known += [one for one in self._known.values() if one.file.place == uri]
                self._damaged |= {one: text for one, text in former.items() if one.place == uri}
                continue
            self._complaints.discard(uri)
            files.sort(key=lambda one: one[2].modified_ns, reverse=True)
            read = (
                self._archive(kind, archive_id, file, former) for kind, archive_id, file in files
            )
            known += self._retained([one for one in read if one is not None])
        self._known = {one.file: one for one in known}
        known.sort(
            key=lambda one: one.file.modified_ns
        )  # Of two with one id, the newer one counts.
        archives = {(one.kind, one.archive_id): one for one in known}
        self._shelf = dict(reversed(archives.items()))
        return len(_overviews(self._shelf, "jobs"))

    def _complain(self, subject: object, text: str, place: str, error: Exception) -> None:
        """Warn, but only once of each subject."""
        if subject not in self._complaints:
            self._complaints.add(subject)
            _LOG.warning(text, without_credentials(place), without_credentials(str(error)))

    def _archive(
        self, kind: str, archive_id: str, file: _File, damaged: Mapping[_File, str]
    ) -> _Archive | None:
        """Read a file that is new. None: it is no archive. `damaged`: those that are known to be none."""
        if file in self._known:
            return self._known[file]
        if file in damaged:  # Read again when it has changed.
            self._damaged[file] = damaged[file]
            return None
        try:
            text = read_archive(file.data()).get(f"/{kind}/overview", "")
            return _Archive(kind, archive_id, file, _overview(text, kind, archive_id))
        except ArchiveDamaged as error:
            self._damaged[file] = str(error)
            _LOG.warning("archive=%s SKIPPED cause=%s", file.path, error)
        except OSError as error:
            self._complain(file, "archive=%s NOT READ cause=%s", file.path, error)
        return None

    def _retained(self, archives: list[_Archive]) -> list[_Archive]:
        """Remove the jobs of one folder that are too many, and return the rest. `archives`: newest first."""
        legacy = [one.file for one in archives if one.file.is_legacy]
        surplus = set(legacy[self._retained_jobs :] if self._retained_jobs > 0 else ())
        for file in surplus:
            try:
                file.remove()
            except OSError as error:
                self._complain(file, "archive=%s NOT REMOVED cause=%s", file.path, error)
            else:
                _LOG.info("archive=%s REMOVED", file.path)
        return [one for one in archives if one.file not in surplus]

    def answer(self, path: str) -> bytes | None:
        """Return the JSON at a path; None: no archive has it. May block: an archive may have to be read."""
        shelf = self._shelf
        if path == "/jobs":
            jobs = _overviews(shelf, "jobs")
            ids = [{"id": one["jid"], "status": one.get("state")} for one in jobs]
            return json.dumps({"jobs": ids}).encode()
        if path == "/archives/damaged":
            return json.dumps(self._damages()).encode()
        for kind in _LISTS:
            if path == f"/{kind}/overview":
                return json.dumps({kind: _overviews(shelf, kind)}).encode()
        asked = _PATH.fullmatch(path)
        archive = None if asked is None else shelf.get((asked[1], asked[2]))
        text = None if archive is None else self._entries(archive.file).get(path)
        return None if text is None else text.encode(errors="replace")

    def _damages(self) -> Any:
        """Return what is damaged, and why: not in Flink."""
        damaged = dict(self._damaged)
        shown = [
            {"file": without_credentials(f"{file.place.rstrip('/')}/{name}"), "cause": cause}
            for file, cause in list(damaged.items())[:_MOST_NAMED]
            for name in [file.path.rpartition("/")[2]]
        ]
        return {"total": len(damaged), "archives": shown}

    def _entries(self, file: _File) -> dict[str, str]:
        """Return all answers of an archive; none: it is gone."""
        with self._lock:
            if file in self.cache:
                self.cache.move_to_end(file)
                return self.cache[file]
        try:
            entries = read_archive(file.data())
        except (OSError, ArchiveDamaged) as error:
            _LOG.warning("archive=%s NOT READ cause=%s", file.path, error)
            return {}
        with self._lock:
            self.cache[file] = entries
            while len(self.cache) > 1 and sum(one.size for one in self.cache) > _CACHE_BYTES:
                self.cache.popitem(last=False)
        return entries


def _overviews(shelf: Mapping[tuple[str, str], _Archive], kind: str) -> list[dict[str, Any]]:
    return [one.overview for one in shelf.values() if one.kind == kind]


def _opened(uri: str) -> tuple[Any, str]:
    """Return the file system and the path in it. Raises ConfigurationError."""
    from pyarrow import ArrowInvalid, ArrowNotImplementedError, fs

    path = local_path(uri) if uri.strip() else None
    if path is not None:
        return fs.LocalFileSystem(), path
    try:
        system, path = arrow_system(uri)
    except (ArrowInvalid, ArrowNotImplementedError, OSError, ValueError) as error:
        raise ConfigurationError(
            f"the folder of archives {without_credentials(uri)!r} cannot be opened: {error}. Use a "
            "path or a URI that pyarrow.fs knows (file, s3, gs, hdfs, abfs)."
        ) from error
    return system, path


def _files(place: str, system: Any, root: str) -> Iterator[tuple[str, str, _File]]:
    """Return what may be archives below a folder: their kind, id and file. Raises OSError."""
    for info in _entries_of(system, root, must_exist=True):
        if not is_id(info.base_name):
            continue
        if info.is_file:
            yield "jobs", info.base_name, _file(place, system, info, is_legacy=True)
            continue
        for application in _entries_of(system, f"{info.path}/applications"):
            if is_id(application.base_name):
                yield from _application(place, system, application)


def _application(place: str, system: Any, folder: Any) -> Iterator[tuple[str, str, _File]]:
    """The summary is written last: without it the application is not complete."""
    summaries = [
        one for one in _entries_of(system, folder.path) if one.base_name == "application-summary"
    ]
    for summary in summaries:
        yield "applications", folder.base_name, _file(place, system, summary)
        for job in _entries_of(system, f"{folder.path}/jobs"):
            if job.is_file and is_id(job.base_name):
                yield "jobs", job.base_name, _file(place, system, job)


def _entries_of(system: Any, path: str, *, must_exist: bool = False) -> list[Any]:
    from pyarrow import fs

    found: list[Any] = system.get_file_info(fs.FileSelector(path, allow_not_found=not must_exist))
    return found


def _file(place: str, system: Any, info: Any, *, is_legacy: bool = False) -> _File:
    return _File(place, system, info.path, info.size, info.mtime_ns or 0, is_legacy)


def _overview(text: str, kind: str, archive_id: str) -> dict[str, Any]:
    """Return the line of the only job or application of an archive. Raises ArchiveDamaged: it has none, or that of another."""
    try:
        (line,) = json.loads(text, parse_constant=_no_number)[kind]
        is_right = line["jid" if kind == "jobs" else "id"] == archive_id
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArchiveDamaged(f"its /{kind}/overview does not name one of them") from error
    if not is_right:
        raise ArchiveDamaged(f"its /{kind}/overview does not name {archive_id}")
    for name, type_ in _TYPES.items():
        if not isinstance(line.get(name, type_()), type_):
            raise ArchiveDamaged(f"its /{kind}/overview has a {name} that is no {type_.__name__}")
    return dict(line)


_TYPES: Final[Mapping[str, type]] = {"name": str, "state": str, "tasks": dict}
"""What the list of all jobs shows, and every job must have as it is."""


def _no_number(name: str) -> None:
    """A browser reads no list in which one archive has it."""
    raise ValueError(f"{name} is no JSON")
