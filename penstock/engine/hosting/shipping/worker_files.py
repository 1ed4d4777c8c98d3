"""A program's archives and packages on an executor: in a working directory, and on the import path.

Shipped by value with the bodies of Spark tasks: imports nothing of Penstock.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple


class WorkerFiles(NamedTuple):
    """Names are of folders among Spark's files.

    `links`: (name, path in the working directory). `paths`: names of the folders that are
    importable.
    """

    links: tuple[tuple[str, str], ...] = ()
    paths: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.links or self.paths)


def place(files: WorkerFiles, root: str, folder: str) -> str | None:
    """Put packages on the import path, and archives into a new directory in `folder`.

    `root`: where Spark keeps its files on this executor. Returns: the directory; None: there are no
    archives.
    """
    for name in files.paths:
        sys.path.insert(0, os.path.join(root, name))
    if not files.links:
        return None
    directory = os.path.join(folder, "work")
    os.mkdir(directory)
    for name, target in files.links:
        link = os.path.join(directory, target)
        os.makedirs(os.path.dirname(link), exist_ok=True)
        os.symlink(os.path.join(root, name), link)
    return directory
