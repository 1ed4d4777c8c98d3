"""What `DataStream.project` makes of a tuple type. Knows no operator. Source: Flink StreamProjection."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.common.typeinfo import TupleTypeInfo, TypeInformation, Types
from penstock.model.errors import GraphError


def projected_type(type_info: TypeInformation, indexes: Sequence[int]) -> TypeInformation:
    """A TUPLE of these positions. Raises: GraphError: it is no tuple, or has no such position."""
    if not isinstance(type_info, TupleTypeInfo):
        raise GraphError(
            f"Only tuple types can be projected, got {type_info}. Use map(), or declare "
            "Types.TUPLE(...) as output type of the operator before."
        )
    types = type_info.get_field_types()
    for index in indexes:
        if not 0 <= index < len(types):
            raise GraphError(
                f"project: position {index} is not in [0, {len(types) - 1}] of {type_info}."
            )
    return Types.TUPLE([types[index] for index in indexes])
