"""CheckpointingMode. Source: pyflink.datastream.checkpointing_mode."""

from enum import Enum


class CheckpointingMode(Enum):
    """How often a record counts in the state after a restore: exactly once, or at least once."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
