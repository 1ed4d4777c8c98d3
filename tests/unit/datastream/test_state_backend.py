"""State backends as objects. Expectations: the options of docs/reference/configuration.md, PyFlink's defaults and texts."""

import pytest

from penstock.datastream import (
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    PredefinedOptions,
    StreamExecutionEnvironment,
)
from penstock.engine.model.errors import ConfigurationError


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


def options(env):
    return env.get_configuration().to_dict()


def test_a_backend_that_is_set_sets_its_options(env):
    hashmap = HashMapStateBackend()
    assert env.set_state_backend(hashmap) is env
    assert options(env) == {"state.backend.type": "hashmap"}
    assert env.get_state_backend() is hashmap
    env.set_state_backend(EmbeddedRocksDBStateBackend())
    assert options(env) == {"state.backend.type": "rocksdb"}
    env.set_state_backend(EmbeddedRocksDBStateBackend(enable_incremental_checkpointing=True))
    assert options(env) == {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": "true",
    }
    env.set_state_backend(EmbeddedRocksDBStateBackend(False))
    assert options(env)["execution.checkpointing.incremental"] == "false"


def test_without_a_backend_there_is_none(env):
    assert env.get_state_backend() is None
    assert options(env) == {}


def test_getters_give_what_setters_were_given():
    backend = EmbeddedRocksDBStateBackend()
    assert (backend.get_db_storage_paths(), backend.get_options()) == ([], None)
    assert backend.get_predefined_options() is PredefinedOptions.DEFAULT
    assert backend.get_number_of_transfer_threads() == 4
    assert backend.is_incremental_checkpoints_enabled() is False
    assert EmbeddedRocksDBStateBackend(True).is_incremental_checkpoints_enabled() is True
    backend.set_db_storage_paths("file://var/one/", "/var/two", "file:/var/three/")
    assert backend.get_db_storage_paths() == ["/one", "/var/two", "/var/three"]
    backend.set_db_storage_paths(None)
    assert backend.get_db_storage_paths() == []
    backend.set_predefined_options(PredefinedOptions.FLASH_SSD_OPTIMIZED)
    assert backend.get_predefined_options() is PredefinedOptions.FLASH_SSD_OPTIMIZED
    backend.set_options("org.example.Factory")
    assert backend.get_options() == "org.example.Factory"
    backend.set_number_of_transfer_threads(8)
    assert backend.get_number_of_transfer_threads() == 8
    assert [str(one) for one in (HashMapStateBackend(), backend)] == [
        "HashMapStateBackend",
        "EmbeddedRocksDBStateBackend",
    ]


@pytest.mark.parametrize(
    ("setter", "value"),
    [
        ("set_db_storage_paths", "/var/db"),
        ("set_predefined_options", PredefinedOptions.SPINNING_DISK_OPTIMIZED),
        ("set_options", "org.example.Factory"),
        ("set_number_of_transfer_threads", 2),
    ],
)
def test_what_has_no_option_here_is_refused_when_the_backend_is_set(env, setter, value):
    backend = EmbeddedRocksDBStateBackend()
    getattr(backend, setter)(value)
    with pytest.raises(ConfigurationError, match=rf"{setter} set what RocksDB has no option for"):
        env.set_state_backend(backend)
    assert (options(env), env.get_state_backend()) == ({}, None)


def test_wrong_arguments_are_refused(env):
    with pytest.raises(TypeError, match="True, False or None, got 'yes'"):
        EmbeddedRocksDBStateBackend("yes")
    with pytest.raises(TypeError, match="PredefinedOptions"):
        EmbeddedRocksDBStateBackend().set_predefined_options("DEFAULT")
    with pytest.raises(ConfigurationError, match="transfer threads must be at least 1"):
        EmbeddedRocksDBStateBackend().set_number_of_transfer_threads(0)
    with pytest.raises(TypeError, match=r"set_state_backend takes a StateBackend .* got 'rocksdb'"):
        env.set_state_backend("rocksdb")
    with pytest.raises(NotImplementedError, match="in Java"):
        CustomStateBackend(object())
