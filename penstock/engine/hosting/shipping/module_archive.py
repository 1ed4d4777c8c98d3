"""Unpacks the zip of a program's own modules. Knows no job."""

from __future__ import annotations

import zipfile
from io import BytesIO
from pathlib import Path

from penstock.engine.hosting.os import private_files
from penstock.engine.model.errors import ExternalError


def unpack(archive: bytes, folder: str) -> None:
    """Write the files of a zip into a folder of ours, with mode 0600, in folders of mode 0700.

    Raises: ExternalError: a name in the archive is outside of the folder.
    """
    root = Path(folder).resolve()
    with zipfile.ZipFile(BytesIO(archive)) as modules:
        for entry in modules.infolist():
            place = (root / entry.filename).resolve()
            if not place.is_relative_to(root):
                raise ExternalError(
                    f"module archive names {entry.filename!r}, outside its directory"
                )
            for above in reversed(place.relative_to(root).parents[:-1]):
                (root / above).mkdir(mode=0o700, exist_ok=True)
            if entry.is_dir():
                place.mkdir(mode=0o700, exist_ok=True)
            else:
                private_files.write_file(place, modules.read(entry))
