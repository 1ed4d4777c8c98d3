"""File formats: how the bytes of a file become batches. Does not know the enumerator; each format has its own module.

Source: Flink StreamFormat, BulkFormat; differs: formats are Python classes that return whole batches, and decide
themselves how a file may be cut.
"""

from __future__ import annotations

import copy
import glob
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from penstock.common.io import InputFormat
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.engine.model.errors import ConfigurationError, RefusedForGood, UserCodeError
from penstock.engine.runtime.elements import Batch, RowBatch
from penstock.engine.runtime.records.dead_letters import Malformed
from penstock.formats.file_access import Address, RemoteFiles, is_remote, open_files, reached, shown

# ---------------------------------------------------------------------- file listing
# Lists the files that a source reads, and cuts them into pieces. Does not know any format.
#
# Source: Flink NonSplittingRecursiveEnumerator, BlockSplittingRecursiveEnumerator; differs: globs are understood, and
# small pieces are handed out in groups, so that ten thousand small files do not cost ten thousand requests.


DEFAULT_SPLIT_BYTES: Final = 64 * 1024 * 1024
MIN_GROUP_BYTES: Final = 256 * 1024
GROUPS_PER_SUBTASK: Final = 16
MAX_PIECES_IN_GROUP: Final = 1024
HIDDEN_PREFIXES: Final = (".", "_")
GLOB_SIGNS: Final = "*?["
MOST_OF_RECORD: Final = 64 << 20
"""Bytes of a record: what has more is not kept until its end comes."""


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Part of a file: [start, stop) in bytes, or in the format's own unit. stop None: to the end of the file."""

    path: str
    start: int
    stop: int | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FileSplit:
    """The pieces that a reader gets in one request, in the order in which to read them."""

    number: int
    pieces: tuple[FilePiece, ...]


@dataclass(frozen=True, slots=True)
class FoundFile:
    """`path`: a path, or an address."""

    path: str
    size: int

    @property
    def name(self) -> str:
        """A name that no other file has, for ever."""
        return Address.of(self.path).name if is_remote(self.path) else self.path


def local_path(path: str) -> str:
    """A path without `file:`."""
    return unquote(urlsplit(path).path) if path.startswith("file:") else path


def list_files(paths: Sequence[str], *, may_be_empty: bool = False) -> list[FoundFile]:
    """All files under the paths, sorted within each path.

    `may_be_empty`: in an object store, where a folder is there as soon as it has an object.

    Raises: ConfigurationError: a path does not exist, or a server does not list it.
    """
    found: list[FoundFile] = []
    for path in paths:
        if is_remote(path):
            found.extend(list_remote(path, may_be_empty=may_be_empty))
            continue
        roots = _roots(local_path(path))
        if not roots:
            raise ConfigurationError(
                f"FileSource: {path!r} does not exist, seen from {Path.cwd()}. Give a file, a "
                "directory or a glob that every machine of the job can read."
            )
        for root in roots:
            found.extend(FoundFile(one, os.stat(one).st_size) for one in _files_under(root))
    return found


def list_remote(uri: str, *, may_be_empty: bool) -> list[FoundFile]:
    address = Address.of(uri)
    files = open_files(address)

    def listed() -> list[FoundFile]:
        sizes = dict(_remote_files(files, address, uri))
        return [
            FoundFile(str(files.address_of(path, address)), sizes[path]) for path in sorted(sizes)
        ]

    found = reached("FileSource: cannot list", address, listed)
    if nameless := [one for one in found if "//" in one.name.partition("://")[2]]:
        raise RefusedForGood(
            f"FileSource: the object {shown(nameless[0].path)!r} has an empty name between two "
            "slashes, and Arrow's client reads none of that kind. Rename it, or read the others "
            "by a glob."
        )
    if not found and not (may_be_empty and _container_exists(files, address)):
        raise ConfigurationError(
            f"FileSource: there is no file at {address.shown!r}. Give a file, a folder or a "
            "glob, with the name of a bucket that exists."
        )
    return found


def cut(path: str, size: int, split_bytes: int) -> Iterator[FilePiece]:
    """Byte ranges of nearly equal size, none above `split_bytes`; an empty file has none."""
    parts = -(-size // split_bytes)
    bounds = [size * part // parts for part in range(parts + 1)] if parts else []
    for start, stop in pairwise(bounds):
        yield FilePiece(path, start, stop, stop - start)


def grouped(pieces: Iterable[FilePiece], first: int, group_bytes: int) -> Iterator[FileSplit]:
    """Groups neighbouring pieces into splits of up to `group_bytes`; splits are numbered from `first`."""
    group: list[FilePiece] = []
    size = 0
    number = first
    for piece in pieces:
        if group and (size + piece.size_bytes > group_bytes or len(group) >= MAX_PIECES_IN_GROUP):
            yield FileSplit(number, tuple(group))
            number, group, size = number + 1, [], 0
        group.append(piece)
        size += piece.size_bytes
    if group:
        yield FileSplit(number, tuple(group))


def group_bytes_for(total_bytes: int, parallelism: int, split_bytes: int) -> int:
    """A group size by which every subtask gets about sixteen splits, so that no subtask ends long after the others."""
    wanted = total_bytes // (parallelism * GROUPS_PER_SUBTASK)
    return min(split_bytes, max(MIN_GROUP_BYTES, wanted))


def _remote_files(files: RemoteFiles, address: Address, uri: str) -> Iterator[tuple[str, int]]:
    """Paths and sizes of what an address or a glob stands for, without hidden files."""
    path = files.path_of(address).rstrip("/")
    # A '?' begins the query of an address, so it is no sign of a glob here; quoted signs are parts of names.
    if not any(sign in uri.partition("?")[0] for sign in GLOB_SIGNS):
        # What lies below a prefix of S3 costs one request, and to ask whether it is an object two more.
        below = [*_below(files, path)] if files.system.type_name == "s3" else []
        if not below:
            info = files.system.get_file_info(path)
            below = [(path, info.size)] if info.is_file else [*_below(files, path)]
        yield from below
        return
    fixed = re.split(r"[*\[]", path, maxsplit=1)[0].rpartition("/")[0]
    matches = re.compile(f"({_glob_pattern(path)})(/.*)?")
    for found, size in _below(files, fixed, shows_hidden=True):
        match = matches.fullmatch(found)
        if match is not None and not _is_hidden(match[2] or ""):
            yield found, size


def _below(
    files: RemoteFiles, folder: str, *, shows_hidden: bool = False
) -> Iterator[tuple[str, int]]:
    from pyarrow import fs

    selector = fs.FileSelector(folder, recursive=True, allow_not_found=True)
    for info in files.system.get_file_info(selector):
        if info.is_file and (shows_hidden or not _is_hidden(info.path[len(folder) :])):
            yield info.path, info.size


def _container_exists(files: RemoteFiles, address: Address) -> bool:
    """Whether the bucket is there; in file systems with folders, the folder."""
    from pyarrow import fs

    path = files.root.rstrip("/") or files.path_of(address)
    info = reached("FileSource: cannot list", address, lambda: files.system.get_file_info(path))
    return info.type is not fs.FileType.NotFound


def _is_hidden(path: str) -> bool:
    return any(name.startswith(HIDDEN_PREFIXES) for name in path.split("/"))


def _glob_pattern(glob_: str) -> str:
    """A glob as a regular expression, shortest match first. `*` and `[...]` match within a name, `**` across them."""
    result = ""
    for part in re.findall(r"\*\*/?|\*|\[[^\]]+\]|.", glob_):
        if part.startswith("**"):
            result += r"(?:[^/.][^/]*/)*?" if part.endswith("/") else ".*?"
        elif part == "*":
            result += r"(?:(?<!/)|(?!\.))[^/]*"
        elif len(part) > 1:
            signs = re.escape(part[1:-1].removeprefix("!")).replace(r"\-", "-")
            result += f"[{'^' if part[1] == '!' else ''}{signs}]"
        else:
            result += re.escape(part)
    return result


def _roots(path: str) -> list[Path]:
    if Path(path).exists():
        return [Path(path)]
    if any(sign in path for sign in GLOB_SIGNS):
        return [Path(match) for match in sorted(glob.glob(path, recursive=True))]
    return []


def _files_under(root: Path) -> Iterator[str]:
    if not root.is_dir():
        yield str(root)
        return
    for entry in sorted(root.iterdir()):
        if not entry.name.startswith(HIDDEN_PREFIXES):
            yield from _files_under(entry)


# ---------------------------------------------------------------------- file format


def check_fields(names: Sequence[str], wanted: Sequence[str], *, by_place: bool = False) -> None:
    """Check that records with fields of these names fill a file with the wanted ones. `by_place`: whatever their names are.

    Raises: ConfigurationError: they do not.
    """
    if len(names) == len(wanted) if by_place else list(names) == list(wanted):
        return
    raise ConfigurationError(
        f"FileSink: the type of the files has the fields {list(wanted)}, but the records that are "
        f"written to them have {list(names)}. Give the files the fields of the records, in the "
        "same order. BucketAssigner.field_bucket_assigner takes its fields out of the records: "
        "leave them out of the files' type, too, or give keeps_fields=True."
    )


def check_row_type(value_type: Any, wanted: Sequence[str], *, by_place: bool = False) -> None:
    """As `check_fields`, of records of a declared type. Of others nothing is known before they come."""
    if isinstance(value_type, RowTypeInfo):
        check_fields(value_type.get_field_names(), wanted, by_place=by_place)


class FileFormat(ABC):
    """Splits files in the enumerator, and reads the pieces in the readers. It is pickled."""

    max_record_bytes = MOST_OF_RECORD
    """A line, or a record of CSV, that has more is malformed."""

    def limited_to(self, size_bytes: int) -> Self:
        """Return the format with another `max_record_bytes`."""
        made = copy.copy(self)
        made.max_record_bytes = size_bytes
        return made

    @abstractmethod
    def pieces(self, path: str, split_bytes: int) -> Iterator[FilePiece]:
        """Yield the pieces in which this file may be read."""

    def pieces_of(self, file: FoundFile, split_bytes: int) -> Iterator[FilePiece]:
        """As `pieces`, of a file that was listed. What the list has need not be asked again."""
        return self.pieces(file.path, split_bytes)

    @abstractmethod
    def read(self, piece: FilePiece) -> Iterator[Batch]:
        """Yield the batches of one piece, each of at most about 4,096 rows or 1 MiB."""

    def too_long(self, path: str, where: str) -> Malformed:
        """Stands for a record that has more than `max_record_bytes`. `where`: "that begins at byte 5"."""
        place = f"{shown(path)}: the record {where}"
        failure = UserCodeError(
            f"{place} has more than {self.max_record_bytes} bytes. Check that its line ends, and "
            "that its quotes are closed. If it is right, give the source "
            'set_max_record_size(bytes); to skip such records, .on_error("skip").'
        )
        return Malformed(place, failure, failure)

    def reading(self, names: Sequence[str]) -> FileFormat:
        """Return the format for programs that read only these fields of its Rows, as Python values; by default itself.

        Its batches may be `PartialColumns`.
        """
        return self

    @property
    def produced_type(self) -> TypeInformation | None:
        """The type of the records; None: not declared."""
        return None


class BulkFormat(FileFormat):
    """A format that reads whole column batches."""


class FileInputFormat(InputFormat, ABC):
    """Describes files for `env.create_input`. `path`: a file, a directory or a glob."""

    path: str

    @property
    @abstractmethod
    def file_format(self) -> FileFormat:
        """The format that reads the files."""


class RowsFileWriter:
    """Writes what a factory makes of rows. `convert`: the factory's. `put`: writes it. `finish`: writes what is left."""

    def __init__(
        self,
        convert: Callable[[Batch], Any],
        put: Callable[[Any], object],
        finish: Callable[[], None] = lambda: None,
    ) -> None:
        self._convert = convert
        self._put = put
        self.finish = finish

    def write(self, batch: Any) -> None:
        self._put(self._convert(batch) if isinstance(batch, RowBatch) else batch)
