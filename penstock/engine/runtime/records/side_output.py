"""OutputTag, the name of a side output; and the separation of side outputs from an operator's results. Does not know operators.

Source: Flink OutputTag, PyFlink pyflink.datastream.output_tag; differs: in nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from penstock.engine.model.types import PickledBytesTypeInfo, RowTypeInfo, TypeInformation
from penstock.engine.runtime.elements import Element, RowBatch, Tagged
from penstock.engine.runtime.records.output_copies import never_changes, own_copy


@never_changes
class OutputTag:
    """Names a side output. Two tags are equal if their ids are.

    Args:
        tag_id: the id.
        type_info: the type of the records. None: pickled; a list: a ROW of those types.
    """

    __slots__ = ("tag_id", "type_info")

    def __init__(
        self, tag_id: str, type_info: TypeInformation | list[TypeInformation] | None = None
    ) -> None:
        if not isinstance(tag_id, str) or not tag_id:
            raise ValueError(f"an OutputTag needs a non-empty string as id, got {tag_id!r}")
        self.tag_id = tag_id
        if type_info is None:
            self.type_info: TypeInformation = PickledBytesTypeInfo()
        elif isinstance(type_info, list):
            self.type_info = RowTypeInfo(type_info)
        elif isinstance(type_info, TypeInformation):
            self.type_info = type_info
        else:
            raise TypeError(
                f"OutputTag {tag_id!r}: type_info must be a TypeInformation or a list of them, got "
                f"{type(type_info).__name__}"
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputTag) and other.tag_id == self.tag_id

    def __hash__(self) -> int:
        return hash(self.tag_id)

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r}, {self.type_info})"


def is_tagged(value: Any) -> bool:
    """Whether a result is for a side output: (tag, value). As in PyFlink, further items of the
    tuple are ignored.
    """
    return type(value) is tuple and len(value) >= 2 and isinstance(value[0], OutputTag)


class AsideCollector:
    """Collects results for side outputs, each with its timestamp, during one batch."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[list[Any], list[int]]] = {}

    def add(self, tag_id: str, value: Any, stamp: int) -> None:
        values, stamps = self._held.setdefault(tag_id, ([], []))
        values.append(value)
        stamps.append(stamp)

    def untagged(self, results: Iterable[Any], stamp: int) -> Iterator[Any]:
        """The results for the main output. The tagged ones are collected."""
        for result in results:
            if is_tagged(result):
                self.add(result[0].tag_id, own_copy(result[1]), stamp)
            else:
                yield result

    def take(self, tags: tuple[str, ...]) -> Iterator[Tagged]:
        """Remove and yield what was collected for these tags. Results for other tags are dropped."""
        held, self._held = self._held, {}
        for tag_id, (values, stamps) in held.items():
            if tag_id in tags:
                yield Tagged(tag_id, RowBatch(values, np.array(stamps, np.int64)))


def separated(
    batches: Iterable[RowBatch | None], tags: tuple[str, ...]
) -> Iterable[Element | Tagged | None]:
    """Separate tagged tuples from the main output, if some side output is read. Results with tags that are not read are dropped.

    None, a place to stop, stays what it is.
    """
    if not tags:
        return batches
    return _separate(batches, tags)


def _separate(
    batches: Iterable[RowBatch | None], tags: tuple[str, ...]
) -> Iterable[Element | Tagged | None]:
    for batch in batches:
        if batch is None:
            yield None
            continue
        sides: dict[str | None, list[int]] = {}
        for index, value in enumerate(batch.values):
            if is_tagged(value):
                sides.setdefault(value[0].tag_id, []).append(index)
            else:
                sides.setdefault(None, []).append(index)
        if set(sides) == {None}:
            yield batch
            continue
        for tag, indexes in sides.items():
            stamps = None if batch.timestamps is None else batch.timestamps[np.array(indexes)]
            values = [batch.values[index] for index in indexes]
            if tag is None:
                yield RowBatch(values, stamps)
            elif tag in tags:
                yield Tagged(tag, RowBatch([value[1] for value in values], stamps))
