"""Lists the files that a source reads, and cuts them into pieces. Does not know any format.

Source: Flink NonSplittingRecursiveEnumerator, BlockSplittingRecursiveEnumerator; differs: globs are understood, and
small pieces are handed out in groups, so that ten thousand small files do not cost ten thousand requests.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock.model.errors import ConfigurationError

DEFAULT_SPLIT_BYTES: Final = 64 * 1024 * 1024
MIN_GROUP_BYTES: Final = 256 * 1024
GROUPS_PER_SUBTASK: Final = 16
MAX_PIECES_IN_GROUP: Final = 1024
HIDDEN_PREFIXES: Final = (".", "_")
GLOB_SIGNS: Final = "*?["


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


def local_path(path: str) -> str:
    """The path of a `file:` URI; other schemes are refused."""
    parts = urlsplit(path)
    if parts.scheme == "file":
        return unquote(parts.path)
    if "://" in path:
        raise ConfigurationError(
            f"path {path!r}: only local files and mounted directories can be read and written, not "
            f"'{parts.scheme}:'. Mount the directory on every machine, or read it with Spark."
        )
    return path


def list_files(paths: Sequence[str]) -> list[str]:
    """All files under the paths, sorted within each path. Raises: ConfigurationError: a path does not exist."""
    found: list[str] = []
    for path in paths:
        roots = _roots(local_path(path))
        if not roots:
            raise ConfigurationError(
                f"FileSource: {path!r} does not exist, seen from {Path.cwd()}. Give a file, a "
                "directory or a glob that every machine of the job can read."
            )
        for root in roots:
            found.extend(_files_under(root))
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
