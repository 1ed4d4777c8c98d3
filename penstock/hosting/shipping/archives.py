"""Checks of a program's archives, before anything of the job runs: what they hold stays in their folder, and each has a folder of its own.

Does not unpack them: Spark does, on the executors. Source: none; Flink unpacks what it is given.
"""

from __future__ import annotations

import os
import posixpath
import stat
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from penstock.model.errors import ConfigurationError

KINDS: Final = (".zip", ".tar", ".tar.gz", ".tgz")


def checked_archives(
    archives: Sequence[tuple[str, str | None]],
) -> tuple[tuple[str, str], ...]:
    """The archives as (path, target in the working directory).

    Args: archives: (path, target); None: the target is the file's name.
    Raises: ConfigurationError: a file is not an archive, a target is not a folder below the working directory, two targets are in one
        another, or an archive holds what would be outside of its folder.
    """
    found: list[tuple[str, str]] = []
    for path, given in archives:
        target = _target(path, Path(path).name if given is None else given)
        _check_apart(target, [other for _, other in found])
        _check_content(path)
        found.append((path, target))
    return tuple(found)


def _target(path: str, target: str) -> str:
    if not Path(path).is_file() or not path.endswith(KINDS):
        raise ConfigurationError(
            f"add_python_archive: {path!r} is not an archive that Spark can unpack. Expected "
            f"an existing file that ends with one of {', '.join(KINDS)}."
        )
    normal = posixpath.normpath(target) if target else "."
    if normal == "." or "\0" in target:
        raise ConfigurationError(
            f"add_python_archive: the target {target!r} of {path!r} names no folder of its own. "
            "Give the name of a folder below the "
            "working directory, or leave the target out: then it is the file's name."
        )
    if os.path.isabs(normal) or normal.split("/")[0] == "..":
        raise ConfigurationError(
            f"add_python_archive: the target {target!r} is outside of the working directory. "
            "Give a relative path below it."
        )
    return normal


def _check_apart(target: str, others: Sequence[str]) -> None:
    for other in others:
        if target == other or target.startswith(f"{other}/") or other.startswith(f"{target}/"):
            raise ConfigurationError(
                f"add_python_archive: the targets {other!r} and {target!r} are the same folder, "
                "or one is inside the other. Give each "
                "archive a folder of its own."
            )


def _check_content(path: str) -> None:
    try:
        for name, why in _zip_faults(path) if path.endswith(".zip") else _tar_faults(path):
            raise ConfigurationError(
                f"add_python_archive: {path!r} holds {name[:200]!r}, which {why}. Unpacking it "
                "would reach outside of its folder. Make "
                "the archive anew, from inside the folder that it is to hold, without links that "
                "lead out."
            )
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise ConfigurationError(
            f"add_python_archive: {path!r} cannot be read as an archive: {type(error).__name__}: "
            f"{str(error)[:500]}. Make it anew."
        ) from error


def _zip_faults(path: str) -> Iterator[tuple[str, str]]:
    """Names of what does not stay inside, and why."""
    with zipfile.ZipFile(path) as archive:
        for one in archive.infolist():
            name = one.orig_filename
            if _leaves(name):
                yield name, "is a path that leaves the archive"
            elif stat.S_ISLNK(one.external_attr >> 16):
                # A target of a link is a path. What is longer leads nowhere.
                with archive.open(one) as link:
                    leads_to = link.read(4096).decode("utf-8", "replace")
                if _leaves(posixpath.join(posixpath.dirname(name), leads_to)):
                    yield name, f"is a link to {leads_to[:200]!r}"


def _tar_faults(path: str) -> Iterator[tuple[str, str]]:
    """Names of what does not stay inside, and why."""
    with tarfile.open(path) as archive:
        for one in archive:
            if _leaves(one.name):
                yield one.name, "is a path that leaves the archive"
            elif one.issym() and _leaves(posixpath.join(posixpath.dirname(one.name), one.linkname)):
                yield one.name, f"is a link to {one.linkname[:200]!r}"
            elif one.islnk() and _leaves(one.linkname):
                yield one.name, f"is a hard link to {one.linkname[:200]!r}"
            elif one.ischr() or one.isblk() or one.isfifo():
                yield one.name, "is a device or a pipe"


def _leaves(name: str) -> bool:
    """Whether a path inside an archive is absolute or leads out of it. A backslash separates "
    "folders for some who unpack."""
    slashed = name.replace("\\", "/")
    if slashed.startswith("/") or slashed[1:2] == ":":
        return True
    return posixpath.normpath(slashed).split("/")[0] == ".."
