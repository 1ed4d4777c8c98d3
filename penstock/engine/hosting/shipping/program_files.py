"""Archives and requirements of a program, which Spark brings to the executors.

Spark unpacks an archive on each executor (SparkContext.addArchive). Functions find it in their
working directory, under the name that the program gave it. Requirements are installed on the
driver, for its Python and platform, and travel as one more archive, which is importable. Source:
PyFlink's add_python_archive and set_python_requirements; differs: pip runs once, on the driver, so
that executors need neither pip nor a package index.

Checks of a program's archives, before anything of the job runs: what they hold stays in their folder, and each has a folder of its own.

Does not unpack them: Spark does, on the executors. Source: none; Flink unpacks what it is given.
"""

from __future__ import annotations

import functools
import hashlib
import os
import posixpath
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from penstock.engine.hosting.os import private_files
from penstock.engine.hosting.os.private_files import OwnFolder
from penstock.engine.hosting.shipping.worker_files import WorkerFiles
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.program import ProgramSettings
from penstock.engine.model.texts.bounded_text import bounded_str, cut

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
    for name, why in _faults(_entries(path)):
        raise ConfigurationError(
            f"add_python_archive: {path!r} holds {cut(name, 200)!r}, which {why}. Unpacking it "
            "would reach outside of its folder. Make "
            "the archive anew, from inside the folder that it is to hold, without links that "
            "lead out."
        )


def _entries(path: str) -> list[_Entry]:
    try:
        return [*(_in_zip(path) if path.endswith(".zip") else _in_tar(path))]
    # Of many kinds: each compression has its own, and zipfile cannot read all.
    except Exception as error:
        raise ConfigurationError(
            f"add_python_archive: {path!r} cannot be read as an archive: {type(error).__name__}: "
            f"{bounded_str(error, 500)}. Make it anew."
        ) from error


@dataclass(frozen=True, slots=True)
class _Entry:
    """One of an archive. `link`: where it leads as a symbolic link, or None; `hard`: as a hard link; `is_special`: a device or a pipe."""

    name: str
    link: str | None = None
    hard: str | None = None
    is_special: bool = False


def _faults(entries: Sequence[_Entry]) -> Iterator[tuple[str, str]]:
    """Names of what does not stay inside, and why.

    Paths are compared as texts. So no path may contain a link of the archive, and no link may have
    `..` after a name: there the text does not say where it leads.
    """
    links = {_normal(one.name) for one in entries if one.link is not None}
    for one in entries:
        folder = posixpath.dirname(_normal(one.name))
        if _leaves(one.name):
            yield one.name, "is a path that leaves the archive"
        elif _goes_up_inside(one.name):
            yield one.name, "is a path that goes up again"
        elif one.link is not None and (
            _leaves(posixpath.join(folder, one.link)) or _goes_up_inside(one.link)
        ):
            yield one.name, f"is a link to {cut(one.link, 200)!r}"
        elif one.hard is not None and (_leaves(one.hard) or _goes_up_inside(one.hard)):
            yield one.name, f"is a hard link to {cut(one.hard, 200)!r}"
        elif one.is_special:
            yield one.name, "is a device or a pipe"
        elif not links.isdisjoint(_above(folder)):
            yield one.name, "is reached through a link of the archive"


def _in_zip(path: str) -> Iterator[_Entry]:
    with zipfile.ZipFile(path) as archive:
        for one in archive.infolist():
            link = None
            if stat.S_ISLNK(one.external_attr >> 16):
                # A target of a link is a path. What is longer leads nowhere.
                with archive.open(one) as content:
                    link = content.read(4096).decode("utf-8", "replace")
            yield _Entry(one.orig_filename, link)


def _in_tar(path: str) -> Iterator[_Entry]:
    with tarfile.open(path) as archive:
        for one in archive:
            yield _Entry(
                one.name,
                one.linkname if one.issym() else None,
                one.linkname if one.islnk() else None,
                one.ischr() or one.isblk() or one.isfifo(),
            )


def _leaves(name: str) -> bool:
    """Whether a path inside an archive is absolute or leads out of it."""
    slashed = _slashed(name)
    if slashed.startswith("/") or slashed[1:2] == ":":
        return True
    return posixpath.normpath(slashed).split("/")[0] == ".."


def _goes_up_inside(path: str) -> bool:
    """Whether `..` follows a name."""
    parts = [part for part in _slashed(path).split("/") if part not in {"", "."}]
    return ".." in [part for place, part in enumerate(parts) if set(parts[:place]) - {".."}]


def _above(folder: str) -> Iterator[str]:
    """The folder, and those above it."""
    while folder:
        yield folder
        folder = posixpath.dirname(folder)


def _normal(name: str) -> str:
    return posixpath.normpath(_slashed(name))


def _slashed(name: str) -> str:
    """A backslash separates folders for some who unpack."""
    return name.replace("\\", "/")


_CHUNK: Final = 1 << 20
_OWN: Final = OwnFolder("penstock-files-")
"""Spark serves an archive from here as long as the process lives."""


class ArchivePlace(Protocol):
    """A SparkContext, or what stands for one."""

    @property
    def listArchives(self) -> Sequence[str]: ...  # ruff: ignore[invalid-function-name]
    def addArchive(self, path: str) -> None: ...  # ruff: ignore[invalid-function-name]


def bring_files(context: ArchivePlace, program: ProgramSettings) -> WorkerFiles:
    """Add the files to Spark.

    Raises: ConfigurationError: as `checked_archives`, or a requirement cannot be installed.
    """
    archives = checked_archives(program.python_archives)
    links = [(_bring(context, path), target) for path, target in archives]
    paths = []
    if program.python_requirements is not None:
        requirements, cache_directory = program.python_requirements
        text = Path(requirements).read_text(encoding="utf-8")
        paths.append(_bring(context, _installed(requirements, text, cache_directory)))
    return WorkerFiles(tuple(links), tuple(paths))


def _bring(context: ArchivePlace, path: str) -> str:
    """Add an archive to Spark, once for equal content. Returns: its folder among Spark's files,
    named by the content.
    """
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    name = f"penstock-{digest.hexdigest()[:20]}"
    if not any(one.endswith(f"#{name}") for one in context.listArchives):
        # Spark identifies files by name, and two programs may have different files of one name.
        kind = next(kind for kind in reversed(KINDS) if path.endswith(kind))
        copy = _OWN.made() / f"{name}{kind}"
        _copy(path, copy)
        context.addArchive(f"{copy}#{name}")
    return name


def _copy(path: str, copy: Path) -> None:
    """Copy a file into a folder of ours, for this user alone."""
    with open(path, "rb") as source, os.fdopen(private_files.new_file(copy), "wb") as target:
        shutil.copyfileobj(source, target)


@functools.lru_cache(maxsize=16)
def _installed(
    requirements: str,
    text: str,  # ruff: ignore[unused-function-argument] - makes the content part of the cache key
    cache_directory: str | None,
) -> str:
    """Install requirements into an archive; cached by the `text` of the file.

    `cache_directory`: contains the packages' files, where there is no package index.
    """
    folder = Path(tempfile.mkdtemp(prefix="requirements-", dir=_OWN.made()))
    packages = folder / "packages"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--requirement", requirements, "--target", str(packages)]
    if cache_directory is not None:
        command += ["--no-index", "--find-links", cache_directory]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ConfigurationError(
                f"set_python_requirements: the packages of {requirements!r} cannot be "
                "installed on the driver, which installs them for the "
                f"executors:\n{(done.stderr or done.stdout).strip()}"
            )
        packages.mkdir(exist_ok=True)  # The file requires nothing.
        # Bytecode contains times. Without it the same packages give the same archive.
        for leftover in packages.rglob("__pycache__"):
            shutil.rmtree(leftover)
        made = shutil.make_archive(str(folder / "requirements"), "zip", packages)
        os.chmod(made, 0o600)
        return made
    finally:
        shutil.rmtree(packages, ignore_errors=True)
