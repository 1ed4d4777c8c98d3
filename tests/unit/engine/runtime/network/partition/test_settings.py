"""Settings of blocking results: what the options say, and the way through JSON."""

import json
import os

import pytest

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.plain import from_plain, to_plain
from penstock.engine.runtime.network.partition.bounded_data import (
    FileData,
    MappedFileData,
    MemoryMappedData,
)
from penstock.engine.runtime.network.partition.settings import (
    BlockingSettings,
    blocking_settings_of,
)

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
