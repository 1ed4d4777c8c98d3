"""DataStreamSink: the end of a stream, with its settings. Knows no operator.

Source: pyflink.datastream.data_stream.DataStreamSink.
"""

from __future__ import annotations

from penstock.common.execution_config import check_parallelism
from penstock.common.setting_checks import check_kind
from penstock.datastream.slot_sharing_group import SlotSharingGroup
from penstock.model.graph.stream_graph import ChainingStrategy, StreamNode


class DataStreamSink:
    """What print() and sink_to() give."""

    def __init__(self, node: StreamNode) -> None:
        self._node = node

    def name(self, name: str) -> DataStreamSink:
        self._node.name = name
        return self

    def uid(self, uid: str) -> DataStreamSink:
        self._node.uid = uid
        return self

    def set_uid_hash(self, uid_hash: str) -> DataStreamSink:
        return self.uid(uid_hash)

    def set_parallelism(self, parallelism: int) -> DataStreamSink:
        check_parallelism(parallelism)
        self._node.parallelism = parallelism
        return self

    def set_description(self, description: str) -> DataStreamSink:
        self._node.description = description
        return self

    def disable_chaining(self) -> DataStreamSink:
        self._node.chaining_strategy = ChainingStrategy.NEVER
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> DataStreamSink:
        self._node.slot_sharing_group = group_name(slot_sharing_group)
        return self


def group_name(group: str | SlotSharingGroup) -> str:
    """Raises: TypeError: it is neither a name nor a group."""
    if isinstance(group, SlotSharingGroup):
        return group.get_name()
    return str(check_kind("slot_sharing_group", group, str, "'large', or a SlotSharingGroup"))
