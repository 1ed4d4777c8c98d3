"""The layout of keyed state in bytes. Reads and writes nothing.

Keyed state is written in chunks of neighbouring key groups. Each chunk has its own handle and checksum, so that a restore
at another parallelism reads only chunks that contain some of its own groups:

    length of header (4 bytes) | header (JSON: the parts) | group | group | ...
    group:  (part number: 2 | rows: 4 | key column | other columns) ...
    column: see `column_format`
"""

from __future__ import annotations

import struct
from typing import Final

VERSION: Final = 1
SECTION_HEAD: Final = struct.Struct("<HI")
"""Number of the part, and number of rows, before a key group's columns of that part."""
