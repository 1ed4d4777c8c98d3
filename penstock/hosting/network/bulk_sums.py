"""Sums of a long payload, which its tag covers in place of the payload where the kernel vouches for
the other end.

A MAC over a megabyte takes five times as long as its sums. It is needed against people between the two
ends. Within one machine, between processes of one user, nobody can stand there whom a MAC would stop. What
remains is damage, and the sums show it: the bytes are words of 8, dealt to `COLUMNS` columns in turn,
and each column is added up. A flipped bit changes a sum. After a byte that is missing or comes twice,
all words differ.
"""

from __future__ import annotations

from typing import Final

import numpy as np

COLUMNS: Final = 1021
"""A prime number: pages and blocks that are exchanged do not fall into the same columns."""
_WORD: Final = 8
_SHORT: Final = 1024
"""Shorter parts are put together first."""


class BulkSums:
    """Of one payload, however its bytes are cut."""

    def __init__(self) -> None:
        self._sums = np.zeros(COLUMNS, np.uint64)
        self._column = 0
        self._rest = b""

    def add(self, part: memoryview) -> None:
        """Add what comes next. `part`: a view of bytes."""
        if len(part) < _SHORT:
            self._rest += part
            return
        missing = -len(self._rest) % _WORD
        end = len(part) - (len(part) - missing) % _WORD
        if self._rest:
            self._add_words(self._rest + part[:missing])
        self._add_words(part[missing:end])
        self._rest = bytes(part[end:])

    def result(self) -> bytes:
        """Return the sums. The last word ends with zeros."""
        self._add_words(self._rest + bytes(-len(self._rest) % _WORD))
        return self._sums.tobytes()

    def _add_words(self, data: bytes | memoryview) -> None:
        words, column = np.frombuffer(data, "<u8"), self._column
        first = words[: COLUMNS - column]
        self._sums[column : column + len(first)] += first
        rows, rest = divmod(len(words) - len(first), COLUMNS)
        if rows:
            whole = words[len(first) : len(words) - rest]
            self._sums += np.add.reduce(whole.reshape(rows, COLUMNS), axis=0)
        if rest:
            self._sums[:rest] += words[-rest:]
        self._column = (column + len(words)) % COLUMNS
