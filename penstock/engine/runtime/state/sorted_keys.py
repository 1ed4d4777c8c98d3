"""Keys of keyed state in the order of their key groups, and what one checkpoint leaves for the next. Does not know states.

Most keys of a checkpoint were in the last one too, in the same place, because a dict keeps the order in which its keys came. To see that
takes a few ns a key; to hash and to pack a text takes 300.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.engine.runtime.keys.hash_arrays import (
    Channels,
    as_channels,
    groups_of_hashes,
    hash_array,
    key_groups,
)
from penstock.engine.runtime.keys.hashing import original_key
from penstock.engine.runtime.state.packed import Packed, PackedValues, PlainValues, packed


@dataclass(frozen=True, slots=True)
class SortedKeys:
    """Keys by key group.

    `keys`: state keys, in the order of the state. `groups`: the key group of each. `order`: where the keys are in the order of
    their key groups. `column`: the keys as users know them, in that order. `bounds`: where each group's keys are in it.
    """

    keys: Sequence[Any]
    groups: Channels
    order: pa.Array
    column: Packed
    bounds: dict[int, tuple[int, int]]


@dataclass(slots=True)
class KeyRule:
    """How the keys of a state get their key groups. `last`: keys of the last checkpoint, if they are worth keeping.

    Any thread may replace `last`.
    """

    max_parallelism: int
    is_int32: bool
    keeps: bool = False
    last: SortedKeys | None = None

    def sorted(self, keys: Sequence[Any], groups: NDArray[np.int64] | None = None) -> SortedKeys:
        """`groups`: of the keys, if they are not what the keys say; else None."""
        last = self.last
        if last is not None and last.keys == keys:
            return last
        column = _packed(keys)
        found = self._groups(keys, column, last) if groups is None else self._narrow(groups)
        # To sort by one or two bytes takes no comparisons.
        order = pa.array(np.argsort(found, kind="stable"))
        ends = np.cumsum(np.bincount(found)).tolist()
        bounds = {
            group: (start, end)
            for group, (start, end) in enumerate(pairwise([0, *ends]))
            if start < end
        }
        made = SortedKeys(keys, found, order, column.taken(order), bounds)
        if self.keeps:
            self.last = made
        return made

    def _groups(self, keys: Sequence[Any], column: Packed, last: SortedKeys | None) -> Channels:
        known = 0 if last is None else len(last.keys)
        if last is None or known > len(keys) or keys[:known] != last.keys:
            return self._groups_of(keys, column)
        new = keys[known:]
        return np.concatenate([last.groups, self._groups_of(new, _packed(new))])

    def _groups_of(self, keys: Sequence[Any], column: Packed) -> Channels:
        hashes = None
        if isinstance(column, PackedValues):
            hashes = hash_array(column.array, is_int32=self.is_int32)
        if hashes is not None:
            return self._narrow(groups_of_hashes(hashes, self.max_parallelism))
        originals = list(map(original_key, keys))
        found = key_groups(originals, self.max_parallelism, is_int32=self.is_int32)
        return self._narrow(found)

    def _narrow(self, groups: NDArray[np.int64]) -> Channels:
        return as_channels(groups, self.max_parallelism)


def _packed(keys: Sequence[Any]) -> Packed:
    """The keys as users know them. State keys cannot be changed, but for what an OtherKey stands for."""
    found = packed(keys)
    if found is None:
        keys = list(map(original_key, keys))
        found = packed(keys)
    return PlainValues(keys) if found is None else found
