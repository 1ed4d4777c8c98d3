"""The program's code in a TaskManager: chains of operators, which are the job's own, and modules, which all jobs of the process share."""

from __future__ import annotations

import hashlib
import sys
import tempfile
import threading
from importlib.abc import MetaPathFinder
from typing import Final

from penstock.engine.hosting.shipping import missing_packages
from penstock.engine.hosting.shipping.module_archive import unpack
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.ids import BlobKey
from penstock.engine.model.messages import PutBlob

PREFIX: Final = "penstock-modules-"
"""Of the folder's name, by which `process_state.py` knows what was shipped."""


class SharedModules:
    """The modules of one kind of jobs, importable as long as the process lives: Python keeps what was imported. Any thread."""

    def __init__(self, folder: str | None = None) -> None:
        """`folder`: has the modules' own; None: it is among the temporary files, and needs `close`."""
        self._parent = folder
        self._lock = threading.Lock()
        self._digest = b""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._missing: list[MetaPathFinder] = []

    @property
    def path(self) -> str | None:
        """The entry of `sys.path`; None: no job has brought modules."""
        return None if self._folder is None else self._folder.name

    def install(self, archive: bytes) -> None:
        """Make modules importable, unless an earlier job has done that.

        Raises: ExternalError: a name in the archive is outside of its folder; or other modules are here already.
        """
        digest = hashlib.sha256(archive).digest()
        with self._lock:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix=PREFIX, dir=self._parent)
                unpack(archive, self._folder.name)
                self._digest = digest
                sys.path.insert(0, self._folder.name)
                self._missing = missing_packages.install([archive])
            elif digest != self._digest:
                raise ExternalError(
                    "a job brought other modules than the jobs before it in this process; the "
                    "driver must give it a process of its own"
                )

    def close(self) -> None:
        """Remove the files."""
        with self._lock:
            missing_packages.uninstall(self._missing)
            if self._folder is not None:
                self._folder.cleanup()
                self._folder = None


class UserModules:
    """The code of one job. `chains`: pickled, by key. `close` removes the modules' files, unless they are shared."""

    def __init__(self, shared: SharedModules | None = None) -> None:
        self.chains: dict[BlobKey, bytes] = {}
        self._modules = shared or SharedModules()
        self._owns_modules = shared is None

    def put(self, blob: PutBlob) -> None:
        """Keep what the driver has sent. Raises: as `SharedModules.install`."""
        if blob.key.startswith("modules-"):
            self._modules.install(blob.data)
        else:
            self.chains[blob.key] = blob.data

    def close(self) -> None:
        if self._owns_modules:
            self._modules.close()
