"""CheckpointingMode. Source: pyflink.datastream.checkpointing_mode."""

from enum import Enum


class CheckpointingMode(Enum):
    """What a record may do to state when a job is restored: count once, or at least once."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
