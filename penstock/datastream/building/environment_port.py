"""What streams ask of the environment that they were built in, so that none of them knows its class."""

from __future__ import annotations

from typing import Any, Protocol

from penstock.common.execution_config import ExecutionConfig
from penstock.datastream.building.environment_plumbing import EnvironmentPlumbing
from penstock.datastream.slot_sharing_group import SlotSharingGroup


class EnvironmentPort(Protocol):
    """`StreamExecutionEnvironment` is one."""

    @property
    def plumbing(self) -> EnvironmentPlumbing:
        """The program under construction, its settings, and what runs it."""

    def get_config(self) -> ExecutionConfig: ...

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> Any: ...
