"""Values of partition columns of Delta tables, from the texts that stand for them in the log. Does not know files.

Source: the Delta protocol, "Partition Value Serialization".
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

import pyarrow as pa

_CODES: Final = re.compile(r"(?:\\u[0-9A-Fa-f]{4})+")
_CODE_CHARS: Final = 6


def partition_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Return the value of a column of this type. An empty text stands for null, whatever the type is."""
    if not text:
        return pa.scalar(None, kind)
    if pa.types.is_timestamp(kind):
        return pa.scalar(_moment(text, has_zone=kind.tz is not None), kind)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.scalar(_bytes(text), kind)
    return pa.scalar(text, pa.string()).cast(kind)


def _moment(text: str, *, has_zone: bool) -> dt.datetime:
    """Writers tell instants with a zone, or in UTC without one."""
    found = dt.datetime.fromisoformat(text)
    utc = found.replace(tzinfo=dt.UTC) if found.tzinfo is None else found.astimezone(dt.UTC)
    return utc if has_zone else utc.replace(tzinfo=None)


def _bytes(text: str) -> bytes:
    r"""One character is one byte. Some writers give its code instead, `\u00FF`."""
    if _CODES.fullmatch(text):
        places = range(0, len(text), _CODE_CHARS)
        return bytes(int(text[place + 4 : place + _CODE_CHARS], 16) for place in places)
    return text.encode("latin-1", "replace")
