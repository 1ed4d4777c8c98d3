"""The part of the environment that streams use, as a Protocol, so that they do not depend on its class."""

from __future__ import annotations

from typing import Any, Protocol

from penstock.common.execution_config import ExecutionConfig
from penstock.datastream.building.environment_plumbing import EnvironmentPlumbing
from penstock.datastream.slot_sharing_group import SlotSharingGroup


class EnvironmentPort(Protocol):
    """The environment as streams see it; `StreamExecutionEnvironment` implements it."""

    @property
    def plumbing(self) -> EnvironmentPlumbing:
        """The program under construction, its settings, and what runs it."""

    def get_config(self) -> ExecutionConfig: ...

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> Any: ...
