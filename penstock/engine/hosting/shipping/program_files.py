"""Archives and requirements of a program, which Spark brings to the executors.

Spark unpacks an archive on each executor (SparkContext.addArchive). Functions find it in their
working directory, under the name that the program gave it. Requirements are installed on the
driver, for its Python and platform, and travel as one more archive, which is importable. Source:
PyFlink's add_python_archive and set_python_requirements; differs: pip runs once, on the driver, so
that executors need neither pip nor a package index.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from pyspark import SparkContext

from penstock.engine.hosting.os import private_files
from penstock.engine.hosting.os.own_folder import OwnFolder
from penstock.engine.hosting.shipping.archives import KINDS, checked_archives
from penstock.engine.hosting.shipping.worker_files import WorkerFiles
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.program import ProgramSettings

_CHUNK: Final = 1 << 20
_OWN: Final = OwnFolder("penstock-files-")
"""Spark serves an archive from here as long as the process lives."""


def bring_files(context: SparkContext, program: ProgramSettings) -> WorkerFiles:
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


def _bring(context: SparkContext, path: str) -> str:
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
