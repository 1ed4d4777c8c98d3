"""The user's own modules in a TaskManager: unpacked, and importable by this job's tasks only."""

from __future__ import annotations

import sys
import tempfile
import zipfile
from io import BytesIO
from pathlib import Path

from penstock.model.errors import ExternalError


class UserModules:
    """The modules of the one job that this process serves. `close` removes the files."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def install(self, archive: bytes) -> None:
        """Unpack and import from an archive. Raises: ExternalError: a name in the archive is outside of its folder."""
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-modules-")
        root = Path(self._folder.name).resolve()
        with zipfile.ZipFile(BytesIO(archive)) as modules:
            for name in modules.namelist():
                if not (root / name).resolve().is_relative_to(root):
                    raise ExternalError(f"module archive names {name!r}, outside its directory")
            modules.extractall(root)
        sys.path.insert(0, self._folder.name)

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
