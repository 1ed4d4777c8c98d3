"""A program's own modules as a zip."""

import io
import zipfile


def archive_of(files):
    """`files`: source by path."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, source in files.items():
            archive.writestr(path, source)
    return buffer.getvalue()
