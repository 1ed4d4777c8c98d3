"""Keys: selection, stable hash, key groups, channels."""

from penstock.engine.model.key_groups import (
    check_parallelism,
    default_max_parallelism,
    key_group_range,
    operator_index,
    restore_sources,
)
from penstock.engine.runtime.keys.encoding import canonical_bytes
from penstock.engine.runtime.keys.hash_arrays import channels_of_hashes
from penstock.engine.runtime.keys.hashing import (
    channel_of,
    hash32,
    key_group,
    murmur,
    original_key,
    state_key,
    state_keys,
)
from penstock.engine.runtime.keys.selection import ChannelCache, KeySelection

__all__ = [
    "ChannelCache",
    "KeySelection",
    "canonical_bytes",
    "channel_of",
    "channels_of_hashes",
    "check_parallelism",
    "default_max_parallelism",
    "hash32",
    "key_group",
    "key_group_range",
    "murmur",
    "operator_index",
    "original_key",
    "restore_sources",
    "state_key",
    "state_keys",
]
