"""The program's code in a TaskManager: chains of operators, and modules, which are importable by this job's tasks only."""

from __future__ import annotations

import sys
import tempfile

from penstock.hosting.shipping.module_archive import unpack
from penstock.model.ids import BlobKey
from penstock.model.messages import PutBlob


class UserModules:
    """The code of the one job that this process serves. `chains`: pickled, by key. `close` removes the modules' files."""

    def __init__(self) -> None:
        self.chains: dict[BlobKey, bytes] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def put(self, blob: PutBlob) -> None:
        """Keep what the driver has sent. Raises: as `install`."""
        if blob.key.startswith("modules-"):
            self.install(blob.data)
        else:
            self.chains[blob.key] = blob.data

    def install(self, archive: bytes) -> None:
        """Unpack and import from an archive. Raises: ExternalError: a name in the archive is outside of its folder."""
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-modules-")
        unpack(archive, self._folder.name)
        sys.path.insert(0, self._folder.name)

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
