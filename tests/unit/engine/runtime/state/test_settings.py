"""Which backend a job's keyed state has. Defaults: Flink's (docs/spec/options.md#runtime; timers
lie in RocksDB with it).
"""

import pytest

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.runtime.state.settings import StateBackendSettings, state_backend_settings_of

TYPE = "state.backend.type"
TIMERS = "state.backend.rocksdb.timer-service.factory"
MEMORY = "state.backend.rocksdb.memory.fixed-per-slot"


def test_settings_are_read_in_any_case():
    assert state_backend_settings_of(Settings({})) == StateBackendSettings(False, 128 << 20, True)
    given = Settings({TYPE: "RocksDB", TIMERS: "heap", MEMORY: "16 mb"})
    assert state_backend_settings_of(given) == StateBackendSettings(True, 16 << 20, False)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        (TYPE, "forst", r"'forst', but it takes 'hashmap' .* or 'rocksdb'"),
        (TIMERS, "disk", "'DISK', but it takes 'ROCKSDB' .* or 'HEAP'"),
        (MEMORY, "1 mb", "RocksDB needs 8,388,608 at least"),
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(key, value, told):
    with pytest.raises(ConfigurationError, match=f"{key}.*{told}"):
        state_backend_settings_of(Settings({key: value}))
