"""RuntimeExecutionMode. Source: pyflink.datastream.execution_mode."""

from enum import Enum


class RuntimeExecutionMode(Enum):
    """STREAMING: everything runs at once and results are running ones. AUTOMATIC means STREAMING
    here.
    """

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2
