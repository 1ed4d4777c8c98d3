"""The user's own modules in a TaskManager: unpacked, and importable by this job's tasks only."""

from __future__ import annotations

import sys
import tempfile

from penstock.hosting.shipping.module_archive import unpack


class UserModules:
    """The modules of the one job that this process serves. `close` removes the files."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def install(self, archive: bytes) -> None:
        """Unpack and import from an archive. Raises: ExternalError: a name in the archive is outside of its folder."""
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-modules-")
        unpack(archive, self._folder.name)
        sys.path.insert(0, self._folder.name)

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
