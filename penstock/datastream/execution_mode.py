"""RuntimeExecutionMode. Source: pyflink.datastream.execution_mode."""

from enum import Enum


class RuntimeExecutionMode(Enum):
    """The mode of a program. AUTOMATIC is BATCH if all sources are bounded.

    STREAMING runs all operators at once and emits running results. BATCH runs stage by stage and
    emits final results.
    """

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2
