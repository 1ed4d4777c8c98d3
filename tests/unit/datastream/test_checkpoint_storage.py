"""Checkpoint storages as objects. Expectations: the options of docs/reference/configuration.md, PyFlink's defaults."""

import pytest

from penstock.datastream import (
    CustomCheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
    StreamExecutionEnvironment,
)
from penstock.engine.model.errors import ConfigurationError


@pytest.fixture
def config():
    return StreamExecutionEnvironment.get_execution_environment().get_checkpoint_config()


def options(config):
    return config._configuration.to_dict()


def test_a_storage_that_is_set_sets_its_options(config):
    storage = FileSystemCheckpointStorage("file:///checkpoints/", 2048)
    assert config.set_checkpoint_storage(storage) is config
    assert config.get_checkpoint_storage() is storage
    assert options(config) == {
        "execution.checkpointing.dir": "file:///checkpoints",
        "execution.checkpointing.data-inline-threshold": "2048 bytes",
    }


def test_a_directory_alone_is_a_storage(config):
    config.set_checkpoint_storage_dir("/checkpoints")
    assert options(config) == {"execution.checkpointing.dir": "/checkpoints"}
    assert config.get_checkpoint_storage().get_checkpoint_path() == "/checkpoints"


def test_the_jobmanagers_storage_sets_a_directory_if_it_has_one(config):
    config.set_checkpoint_storage(JobManagerCheckpointStorage())
    assert options(config) == {}
    config.set_checkpoint_storage(JobManagerCheckpointStorage("/checkpoints"))
    assert options(config) == {"execution.checkpointing.dir": "/checkpoints"}


def test_getters_give_what_constructors_were_given():
    files = FileSystemCheckpointStorage("file://var/checkpoints/")
    assert files.get_checkpoint_path() == "file://var/checkpoints"
    assert (files.get_min_file_size_threshold(), files.get_write_buffer_size()) == (20480, 4096)
    assert files.get_savepoint_path() is None
    sized = FileSystemCheckpointStorage("/c", 2048, 8192)
    assert (sized.get_min_file_size_threshold(), sized.get_write_buffer_size()) == (2048, 8192)
    memory = JobManagerCheckpointStorage()
    assert (memory.get_checkpoint_path(), memory.get_savepoint_path()) == (None, None)
    assert memory.get_max_state_size() == memory.DEFAULT_MAX_STATE_SIZE == 5 * 1024 * 1024
    assert JobManagerCheckpointStorage("/c", 50000).get_max_state_size() == 50000
    assert "file://var/checkpoints" in str(files)
    assert "/c" in str(JobManagerCheckpointStorage("/c"))


def test_what_has_no_option_here_is_refused_when_the_storage_is_set(config):
    with pytest.raises(ConfigurationError, match="write_buffer_size=8192"):
        config.set_checkpoint_storage(FileSystemCheckpointStorage("/c", 2048, 8192))
    with pytest.raises(ConfigurationError, match="max_state_size=50000"):
        config.set_checkpoint_storage(JobManagerCheckpointStorage("/c", 50000))
    assert (options(config), config.get_checkpoint_storage()) == ({}, None)


def test_wrong_arguments_are_refused(config):
    with pytest.raises(ValueError, match="checkpoint_path must not be None"):
        FileSystemCheckpointStorage()
    for threshold in (-2, FileSystemCheckpointStorage.MAX_FILE_STATE_THRESHOLD + 1):
        with pytest.raises(ValueError, match="file_state_size_threshold"):
            FileSystemCheckpointStorage("/c", threshold)
    with pytest.raises(ValueError, match="write_buffer_size"):
        FileSystemCheckpointStorage("/c", write_buffer_size=-2)
    with pytest.raises(TypeError, match="takes a CheckpointStorage"):
        config.set_checkpoint_storage("/c")
    with pytest.raises(NotImplementedError, match="in Java"):
        CustomCheckpointStorage(object())
