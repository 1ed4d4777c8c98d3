"""Settings of the operator behind a stream: its name, uid, parallelism, chain and slot. Builds the graph, runs nothing.

Source: the methods of pyflink.datastream.data_stream.DataStream.
"""

from __future__ import annotations

from typing import Self

from penstock.common.execution_config import check_max_parallelism, check_parallelism
from penstock.datastream.building.stream_plumbing import StreamPlumbing
from penstock.datastream.data_stream.error_handling import set_policy
from penstock.datastream.data_stream.sink import group_name
from penstock.datastream.error_policy import ErrorPolicy
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.slot_sharing_group import SlotSharingGroup
from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.stream_graph import ChainingStrategy, StreamNode
from penstock.engine.model.setting_checks import check_whole
from penstock.engine.runtime.sink import Sink


class OperatorSettings:
    """Settings of the operator whose output a stream is. The setters return the stream itself."""

    def __init__(self, plumbing: StreamPlumbing) -> None:
        self.plumbing = plumbing

    def get_name(self) -> str:
        """Return the operator's name."""
        return self._node("get_name").name

    def name(self, name: str) -> Self:
        """Set the operator's name, as metrics, logs and the console show it."""
        self._node("name").name = name
        return self

    def uid(self, uid: str) -> Self:
        """Set a stable id, by which a savepoint assigns state to the operator."""
        self._node("uid").uid = uid
        return self

    def set_uid_hash(self, uid_hash: str) -> Self:
        """Do the same as `uid`: the operator's id is the given text."""
        return self.uid(uid_hash)

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the number of parallel subtasks.

        Raises:
            GraphError: the operator runs with one fixed parallelism only.
        """
        check_parallelism(parallelism)
        node = self._node("set_parallelism")
        if node.is_parallelism_fixed and parallelism != node.parallelism:
            raise GraphError(
                f"operator '{node.name}' (built at {node.defined_at}) runs only with parallelism "
                f"{node.parallelism}, got {parallelism}. Leave it, or call rebalance() and set the "
                "parallelism of the next operator."
            )
        node.parallelism = parallelism
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups, which limits the parallelism, also after rescaling."""
        check_max_parallelism(max_parallelism)
        self._node("set_max_parallelism").max_parallelism = max_parallelism
        return self

    def force_non_parallel(self) -> Self:
        """Fix the parallelism and the maximum parallelism to 1."""
        node = self._node("force_non_parallel")
        node.parallelism = node.max_parallelism = 1
        node.is_parallelism_fixed = True
        return self

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Set how long a record may wait for its buffer to fill.

        Args:
            timeout_millis: in ms. 0: flush after each batch; -1: flush full buffers only.
        """
        check_whole("buffer timeout (-1: none)", timeout_millis, -1, "ms")
        self._node("set_buffer_timeout").buffer_timeout_ms = timeout_millis
        return self

    def start_new_chain(self) -> Self:
        """Do not chain this operator to the one before it; others may chain to this one."""
        self._node("start_new_chain").chaining_strategy = ChainingStrategy.HEAD
        return self

    def disable_chaining(self) -> Self:
        """Do not chain this operator with any other."""
        self._node("disable_chaining").chaining_strategy = ChainingStrategy.NEVER
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> Self:
        """Put the operator's subtasks into this slot sharing group, by name or as an object."""
        if isinstance(slot_sharing_group, SlotSharingGroup):
            self.plumbing.environment.register_slot_sharing_group(slot_sharing_group)
        node = self._node("slot_sharing_group")
        node.slot_sharing_group = group_name(slot_sharing_group)
        return self

    def set_co_location_group(self, key: str | None) -> Self:
        """Put subtask i of all operators with the same key into one slot; None: no group.

        Flink has this in its Java API only.
        """
        self._node("set_co_location_group").co_location_key = key
        return self

    def set_description(self, description: str) -> Self:
        """Set a longer description, which the console and the plan show."""
        self._node("set_description").description = description
        return self

    def on_error(self, policy: ErrorPolicy | OutputTag | Sink | str) -> Self:
        """Set what becomes of a record at which a function of this operator raises. Not in PyFlink.

        Without a policy the job fails. Nothing is rolled back when a record is put aside: the state
        that the function changed and the results that it yielded before it raised stay. Set it on a
        source for what its format cannot read, and on the result of `key_by` for the key selector.

        Args:
            policy: "fail", "skip" (count, log a sample, go on), an OutputTag (send a DeadLetter
                there as well), a Sink (write the dead letters there), or an ErrorPolicy.

        Raises:
            GraphError: the operator calls no function of yours.
        """
        set_policy(self._node("on_error"), self.plumbing, policy)
        return self

    def _node(self, method: str) -> StreamNode:
        """The operator whose main output this stream is."""
        return self.plumbing.node(method)
