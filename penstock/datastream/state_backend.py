"""State backends are chosen by configuration.

Source: pyflink.datastream.state_backend; differs: there are no classes for them.
"""

from penstock.common.absent import absent

_HASHMAP = (
    "State is kept on the heap unless the configuration says otherwise: state.backend.type: "
    "hashmap."
)
_ROCKSDB = "Set state.backend.type: rocksdb in the configuration, and state.backend.incremental and state.backend.rocksdb.* as for Flink."
_OTHER = (
    "Set state.backend.type to hashmap or rocksdb in the configuration; other backends are not "
    "supported."
)

INSTEAD = {
    **dict.fromkeys(("HashMapStateBackend", "MemoryStateBackend", "FsStateBackend"), _HASHMAP),
    **dict.fromkeys(
        ("EmbeddedRocksDBStateBackend", "RocksDBStateBackend", "PredefinedOptions"), _ROCKSDB
    ),
    **dict.fromkeys(("StateBackend", "CustomStateBackend"), _OTHER),
}
"""What to use, by the name in PyFlink."""

__getattr__ = absent(__name__, INSTEAD)
