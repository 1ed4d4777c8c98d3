"""Where checkpoints go is set by configuration.

Source: pyflink.datastream.checkpoint_storage; differs: there are no classes for it.
"""

from penstock.common.absent import absent

_FILES = "Set execution.checkpointing.dir in the configuration to a directory or the URI of a file system."
_MEMORY = "Checkpoints are always files: set execution.checkpointing.dir in the configuration."

INSTEAD = {
    **dict.fromkeys(
        ("FileSystemCheckpointStorage", "CheckpointStorage", "CustomCheckpointStorage"), _FILES
    ),
    "JobManagerCheckpointStorage": _MEMORY,
}
"""What to use, by the name in PyFlink."""

__getattr__ = absent(__name__, INSTEAD)
