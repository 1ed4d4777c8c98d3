"""DataStreamSink: the end of a stream, with its settings. Does not know any operator.

Source: pyflink.datastream.data_stream.DataStreamSink.
"""

from __future__ import annotations

from typing import Any

from penstock.common.execution_config import check_parallelism
from penstock.datastream.building.stream_plumbing import StreamPlumbing
from penstock.datastream.error_policy import ErrorPolicy
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.slot_sharing_group import SlotSharingGroup
from penstock.engine.model.graph.stream_graph import ChainingStrategy, StreamNode
from penstock.engine.model.setting_checks import check_kind
from penstock.engine.runtime.sink import Sink


class DataStreamSink:
    """The end of a stream, as `print` and `sink_to` return it.

    The setters return the sink itself.
    """

    def __init__(
        self,
        node: StreamNode,
        plumbing: StreamPlumbing | None = None,
        committer: StreamNode | None = None,
    ) -> None:
        """`plumbing`: the stream that ends here; None: no error policy is possible. `committer`: the global one."""
        self._node = node
        self._plumbing = plumbing
        self._committer = committer

    def name(self, name: str) -> DataStreamSink:
        """Set the operator's name, as metrics, logs and the console show it."""
        self._node.name = name
        if self._committer is not None:
            self._node.name = f"{name}: Writer"
            self._committer.name = f"{name}: Global Committer"
        return self

    def uid(self, uid: str) -> DataStreamSink:
        """Set a stable id, by which a savepoint assigns state to the operator."""
        self._node.uid = uid
        if self._committer is not None:
            self._committer.uid = f"{uid}-global-committer"
        return self

    def set_uid_hash(self, uid_hash: str) -> DataStreamSink:
        """Do the same as `uid`: the operator's id is the given text."""
        return self.uid(uid_hash)

    def set_parallelism(self, parallelism: int) -> DataStreamSink:
        """Set the number of parallel subtasks."""
        check_parallelism(parallelism)
        self._node.parallelism = parallelism
        return self

    def set_description(self, description: str) -> DataStreamSink:
        """Set a longer description, which the console and the plan show."""
        self._node.description = description
        return self

    def disable_chaining(self) -> DataStreamSink:
        """Do not chain this operator with any other."""
        self._node.chaining_strategy = ChainingStrategy.NEVER
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> DataStreamSink:
        """Put the operator's subtasks into this slot sharing group, by name or as an object."""
        self._node.slot_sharing_group = group_name(slot_sharing_group)
        if self._committer is not None:
            self._committer.slot_sharing_group = self._node.slot_sharing_group
        return self

    def on_error(self, policy: ErrorPolicy | OutputTag | Sink | str) -> DataStreamSink:
        """Set what becomes of a record that the sink cannot convert, such as one that its serializer refuses. Not in PyFlink.

        What the outside world refuses, such as a row that breaks a rule of a database, fails the job.

        Args:
            policy: as in DataStream.

        Raises:
            GraphError: the sink does not convert records in a step of its own.
        """
        from penstock.datastream.data_stream.error_handling import set_policy

        set_policy(self._node, self._plumbing, policy)
        return self

    def get_side_output(self, output_tag: OutputTag) -> Any:
        """Return the dead letters of this sink as a DataStream; `on_error` has to be called before. Not in PyFlink."""
        from penstock.datastream.data_stream.error_handling import letters_of

        return letters_of(self._node, self._plumbing, output_tag)


def group_name(group: str | SlotSharingGroup) -> str:
    """Return the group's name. Raises TypeError if it is neither a name nor a group."""
    if isinstance(group, SlotSharingGroup):
        return group.get_name()
    return str(check_kind("slot_sharing_group", group, str, "'large', or a SlotSharingGroup"))
