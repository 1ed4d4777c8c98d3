"""How many rows make a frame of the wanted size, from measured sizes of encoded rows or, if none are known, an estimate.

Source: none; Flink has buffers of bytes. A local exchange here passes objects, whose size must be estimated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from typing import Any, Final

from penstock.engine.runtime.elements import Batch, ColumnBatch

_FIRST_GUESS: Final = 64.0
_SAMPLED_ROWS: Final = 3
_SAMPLED_ITEMS: Final = 16
_DEPTH: Final = 3
_CONTAINERS: Final = (dict, list, tuple, set, frozenset)
_FLAT: Final = frozenset({int, float, bool, str, bytes, type(None)})


class RowSize:
    """The row size of one subpartition. `frame_bytes`: the wanted size now; `frame_rows`: rows in such a frame, at
    most `max_rows`.
    """

    __slots__ = ("_buffer_bytes", "_frame_bytes_max", "_is_measured", "_max_rows", "_wanted_bytes", "bytes_per_row", "frame_bytes", "frame_rows")  # fmt: skip

    def __init__(self, frame_bytes: int, max_rows: int) -> None:
        self._frame_bytes_max = self._buffer_bytes = self._wanted_bytes = frame_bytes
        self.frame_bytes = frame_bytes
        self._max_rows = max_rows
        self._is_measured = False
        self.bytes_per_row = _FIRST_GUESS
        self.frame_rows = 1
        self._update()

    def set_frame_bytes(self, frame_bytes: int) -> None:
        """Set the size that the consumer announced; never above the initial one."""
        self._wanted_bytes = frame_bytes
        self._update()

    @property
    def is_measured(self) -> bool:
        """Whether rows were encoded, which happens only on the way to another process."""
        return self._is_measured

    def limit(self, buffer_bytes: int) -> None:
        """Set the largest size of the pool's buffers."""
        self._buffer_bytes = buffer_bytes
        self._update()

    def measured(self, rows: int, size: int) -> None:
        """So many rows had so many bytes when encoded. From now on nothing is estimated."""
        self._is_measured = True
        self.bytes_per_row = max(1.0, size / max(1, rows))
        self._update()

    def sample(self, batch: Batch) -> None:
        """Estimate from some rows. A larger estimate counts at once, a smaller one gradually."""
        if self._is_measured or not len(batch):
            return
        try:
            size = _row_bytes(batch)
        except Exception:
            # An object of the user's that cannot be inspected is not counted.
            return
        self.bytes_per_row = max(1.0, size, (3 * self.bytes_per_row + size) / 4)
        self._update()

    def pieces(self, batch: Batch) -> Iterator[Batch]:
        """The batch, cut into equal parts if it has more than the wanted bytes. A batch that only has too many rows stays whole."""
        rows, limit = len(batch), self.frame_rows
        if rows <= limit or limit == self._max_rows:
            yield batch
            return
        parts = -(-rows // limit)
        cuts = [rows * part // parts for part in range(parts + 1)]
        for start, stop in pairwise(cuts):
            yield batch.slice(start, stop)

    def _update(self) -> None:
        wanted = min(self._wanted_bytes, self._buffer_bytes, self._frame_bytes_max)
        self.frame_bytes = max(1, wanted)
        rows = int(self.frame_bytes / self.bytes_per_row)
        self.frame_rows = max(1, min(self._max_rows, rows))


def _row_bytes(batch: Batch) -> float:
    rows = len(batch)
    if isinstance(batch, ColumnBatch):
        return float(batch.data.nbytes) / rows
    step = max(1, rows // _SAMPLED_ROWS)
    sample = batch.values[::step][:_SAMPLED_ROWS]
    return sum(object_bytes(value, _DEPTH) for value in sample) / len(sample)


def object_bytes(value: Any, depth: int) -> float:
    """The size of an object and its content, `depth` levels down. Of a long container only some items are counted."""
    size = float(sys.getsizeof(value, 64))
    if type(value) in _FLAT or depth == 0:
        return size
    held = value
    if not isinstance(value, _CONTAINERS):
        held = getattr(value, "__dict__", None)
    if not held:
        return size
    if isinstance(held, (list, tuple)):
        sample: Iterable[Any] = held[:: max(1, len(held) // _SAMPLED_ITEMS)]
    else:
        sample = held.values() if isinstance(held, dict) else held
    sizes = [object_bytes(item, depth - 1) for item in islice(sample, _SAMPLED_ITEMS)]
    return size + sum(sizes) * len(held) / len(sizes)
