"""Packs the dashboard's files into one archive of a wheel, where they need half of the room. A build hook of hatchling.

Modules go without the comments that have lines of their own, and without types: they are for those who change them, in a checkout.

From a checkout, the files are served from `penstock/ops/dashboard`: see `penstock/ops/rest/pages.py`.
"""

import io
import lzma
import re
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER: Final = "penstock/ops/dashboard"
ARCHIVE: Final = "penstock/ops/dashboard.tar.xz"
NOT_SERVED: Final = (".d.ts", ".py", ".pyc")
VENDORED: Final = "vendor/"
COMMENTS: Final = re.compile(
    rb"^[ \t]*(?:/\*\*(?:(?!\*/).)*\*/|//[^\n]*)[ \t]*\n", re.MULTILINE | re.DOTALL
)
"""Of lines of their own. None of our templates has a line that begins so: a test holds it."""
TYPES: Final = re.compile(rb"/\*\* @(?:(?!\*/).)*\*/ ?")
"""Of parameters and values, within a line."""


def packed(folder: Path) -> bytes:
    """Return the archive of all files that are served. The same files give the same bytes."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:xz", preset=9 | lzma.PRESET_EXTREME) as archive:
        for path in sorted(folder.rglob("*"), key=lambda path: (path.suffix, path)):
            if path.is_file() and not path.name.endswith(NOT_SERVED):
                name = path.relative_to(folder).as_posix()
                content = path.read_bytes()
                if name.endswith(".js") and not name.startswith(VENDORED):
                    content = TYPES.sub(b"", COMMENTS.sub(b"", content))
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(content), 0o644
                archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def compress(wheel: Path) -> None:
    """Write a wheel again with the best compression, which hatchling does not offer."""
    with zipfile.ZipFile(wheel) as given:
        files = [(info, given.read(info)) for info in given.infolist()]
    with zipfile.ZipFile(wheel, "w") as made:
        for info, content in files:
            made.writestr(info, content, zipfile.ZIP_DEFLATED, compresslevel=9)


class CustomBuildHook(BuildHookInterface[Any]):
    """Named in pyproject.toml, for wheels only."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self.place = tempfile.TemporaryDirectory(prefix="penstock-dashboard-")
        archive = Path(self.place.name) / Path(ARCHIVE).name
        archive.write_bytes(packed(Path(self.root) / FOLDER))
        build_data["force_include"][str(archive)] = ARCHIVE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self.place.cleanup()
            compress(Path(artifact_path))
