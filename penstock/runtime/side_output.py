"""OutputTag: the name of a side output. Knows no operator.

Source: Flink OutputTag, PyFlink pyflink.datastream.output_tag; differs: in nothing.
"""

from __future__ import annotations

from penstock.model.types import PickledBytesTypeInfo, RowTypeInfo, TypeInformation


class OutputTag:
    """Two tags are equal when their ids are. `type_info` None: pickled; a list: a ROW of those types."""

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
