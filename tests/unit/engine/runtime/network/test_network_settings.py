"""Network options: Flink's keys, what they default to, and how the memory's size is found."""

import json
import os

import pytest

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.job_graph import ResultPartitionType
from penstock.engine.model.plain import from_plain, to_plain
from penstock.engine.runtime.network.network_settings import (
    BlockingSettings,
    NetworkSettings,
    blocking_settings_of,
    network_memory_bytes,
    network_settings_of,
)
from penstock.engine.runtime.network.partition.bounded_data import (
    FileData,
    MappedFileData,
    MemoryMappedData,
)

KEY = "taskmanager.memory.network"
PER_CHANNEL = "taskmanager.network.memory.buffers-per-channel"
EXCLUSIVE = "penstock.exchange.exclusive-buffers-per-gate"
MIB = 1 << 20


def test_the_options_default_to_the_dataclass():
    assert network_settings_of(Settings()) == NetworkSettings()


def test_the_settings_survive_their_way_to_a_taskmanager():
    told = NetworkSettings(memory_bytes=MIB)
    assert from_plain(NetworkSettings, json.loads(json.dumps(to_plain(told)))) == told


@pytest.mark.parametrize(
    ("set_keys", "expected"),
    [
        ({}, 256 * MIB),
        ({KEY: "100 mb"}, 100 * MIB),
        ({KEY: "1 mb", f"{KEY}.min": "64 mb"}, MIB),
        ({f"{KEY}.max": "128 mb"}, 128 * MIB),
        ({f"{KEY}.min": "512 mb"}, 512 * MIB),
        ({"taskmanager.memory.flink.size": "2000 mb"}, 200 * MIB),
        ({"taskmanager.memory.process.size": "1000 mb"}, 100 * MIB),
        ({"taskmanager.memory.flink.size": "100 mb"}, 64 * MIB),
        ({"taskmanager.memory.flink.size": "1 gb", f"{KEY}.fraction": "0.5"}, 512 * MIB),
    ],
)
def test_the_size_is_set_or_a_share_of_the_taskmanager_within_its_bounds(set_keys, expected):
    assert network_memory_bytes(Settings(program=set_keys)) == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("taskmanager.network.memory.floating-buffers-per-gate", "0"),
        ("taskmanager.network.request-backoff.max", "50"),
        ("taskmanager.memory.network", "1 kb"),
        ("taskmanager.network.memory.buffer-debloat.samples", "0"),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_its_key(key, value):
    with pytest.raises(ConfigurationError, match=key.replace(".", r"\.")):
        network_settings_of(Settings(program={key: value}))


def test_bounds_in_the_wrong_order_are_refused():
    with pytest.raises(ConfigurationError, match="must not be above"):
        network_memory_bytes(Settings(program={f"{KEY}.min": "2 gb", f"{KEY}.max": "1 gb"}))


def test_only_gates_of_blocking_inputs_have_a_cap_by_default():
    network = NetworkSettings()
    assert network.required_cap(ResultPartitionType.PIPELINED_BOUNDED) is None
    assert network.required_cap(ResultPartitionType.BLOCKING) == 1000
    capped = NetworkSettings(max_required_per_gate=7)
    assert capped.required_cap(ResultPartitionType.PIPELINED_BOUNDED) == 7


@pytest.mark.parametrize(
    ("options", "channels", "exclusive"),
    [
        ({}, 1, 2),  # Flink's, where the host says nothing
        ({EXCLUSIVE: 16}, 1, 16),
        ({EXCLUSIVE: 16}, 3, 5),
        ({EXCLUSIVE: 16}, 256, 2),
        ({EXCLUSIVE: 16, KEY: "16 mb"}, 1, 4),  # 512 segments for 128 gates
        ({EXCLUSIVE: 16, KEY: "1 mb"}, 1, 2),
        ({EXCLUSIVE: 16, PER_CHANNEL: 3}, 1, 3),
        ({EXCLUSIVE: 16, PER_CHANNEL: 0}, 1, 0),
    ],
)
def test_few_channels_have_more_buffers_of_their_own(options, channels, exclusive):
    assert network_settings_of(Settings(options)).exclusive_of(channels) == exclusive


TYPE = "taskmanager.network.blocking-shuffle.type"
ENABLED = "taskmanager.network.batch-shuffle.compression.enabled"
CODEC = "taskmanager.network.compression.codec"


def of(**options) -> BlockingSettings:
    return blocking_settings_of(Settings(options))


def test_the_defaults_are_compressed_files_in_the_systems_directory():
    found = of()
    assert found == BlockingSettings("file", "LZ4", ())
    assert found.make_compressor() is not None


@pytest.mark.parametrize(
    ("name", "kind"),
    [("file", FileData), ("AUTO", MappedFileData), ("mmap", MemoryMappedData)],
)
def test_each_kind_has_its_class(tmp_path, name, kind):
    data = of(**{TYPE: name}).make_data(str(tmp_path / "part"))
    assert type(data) is kind
    data.close()


def test_directories_are_separated_by_any_of_three_signs():
    assert of(**{"io.tmp.dirs": f"/a, /b|/c{os.pathsep}/d"}).tmp_dirs == ("/a", "/b", "/c", "/d")


def test_without_compression_no_codec_is_looked_at():
    found = of(**{ENABLED: "false", CODEC: "LZO"})
    assert found.make_compressor() is None


@pytest.mark.parametrize(("key", "value"), [(TYPE, "tape"), (CODEC, "LZO")])
def test_a_value_that_there_is_not_is_refused_with_those_there_are(key, value):
    with pytest.raises(ConfigurationError, match=rf"{key}.*takes one of"):
        of(**{key: value})


def test_they_come_through_json():
    found = of(**{"io.tmp.dirs": "/a,/b", CODEC: "ZSTD"})
    assert from_plain(BlockingSettings, json.loads(json.dumps(to_plain(found)))) == found
