"""Whether fields that a writer and a reader number alike can be read: Protobuf itself drops those of another form without a word.

Source: Protobuf's language guide, "Updating A Message Type": which types have the same form on the wire.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_BYTES, _MESSAGE = "bytes", "message"
_NAMES: Final[Mapping[int, str]] = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32",
    8: "bool", 9: "string", 10: "group", 11: _MESSAGE, 12: _BYTES, 13: "uint32", 14: "enum",
    15: "sfixed32", 16: "sfixed64", 17: "sint32", 18: "sint64",
}  # fmt: skip
"""By the number that descriptors give them."""
_ALIKE: Final = (
    frozenset({"int32", "uint32", "int64", "uint64", "bool", "enum"}),
    frozenset({"sint32", "sint64"}),
    frozenset({"string", _BYTES}),
    frozenset({_BYTES, _MESSAGE}),
    frozenset({"fixed32", "sfixed32"}),
    frozenset({"fixed64", "sfixed64"}),
)


def unreadable_field(file: Any, descriptor: Any) -> str:
    """The first field whose values the reader would not see; "": there is none.

    `file`: the writer's FileDescriptorProto. `descriptor`: the reader's message. Messages of files that are imported are not
    looked at.
    """
    writers = dict(_messages(file.message_type, file.package))
    return next(_unreadable(writers, descriptor, set()), "")


def _messages(found: Any, scope: str) -> Iterator[tuple[str, Any]]:
    for one in found:
        name = f"{scope}.{one.name}" if scope else one.name
        yield name, one
        yield from _messages(one.nested_type, name)


def _unreadable(writers: Mapping[str, Any], reader: Any, seen: set[str]) -> Iterator[str]:
    writer = writers.get(reader.full_name)
    if writer is None or reader.full_name in seen:
        return
    seen.add(reader.full_name)
    for one in writer.field:
        mine = reader.fields_by_number.get(one.number)
        if mine is None:  # a field that the reader does not know is dropped, as it should be
            continue
        theirs, own = _NAMES.get(one.type, "?"), _NAMES.get(mine.type, "?")
        if theirs != own and not any({theirs, own} <= kinds for kinds in _ALIKE):
            yield (
                f"the field {one.number} of {reader.full_name} is the {theirs} {one.name!r} of the "
                f"writer and the {own} {mine.name!r} of the reader, and Protobuf would drop it"
            )
        if mine.message_type is not None:
            yield from _unreadable(writers, mine.message_type, seen)
