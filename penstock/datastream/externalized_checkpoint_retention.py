"""ExternalizedCheckpointRetention. Source: pyflink.datastream.externalized_checkpoint_retention."""

from enum import Enum


class ExternalizedCheckpointRetention(Enum):
    """What happens to a job's checkpoints when it is cancelled."""

    DELETE_ON_CANCELLATION = 0
    RETAIN_ON_CANCELLATION = 1
    NO_EXTERNALIZED_CHECKPOINTS = 2
