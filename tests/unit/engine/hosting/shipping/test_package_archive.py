"""The zip of Penstock: every module with bytecode that Python takes as it is."""

import importlib.machinery
import importlib.util
import marshal
import os
import zipfile
from io import BytesIO
from pathlib import Path
from types import CodeType

import pytest

import penstock
from penstock.engine.hosting.shipping import package_archive as archives
from penstock.engine.model.own_places import ARCHIVE_ROOT

HEADER = 16
UNCHECKED = 0b01
"""PEP 552: a hash of the source that is not compared with the source."""


def codes_in(code):
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from codes_in(one)


def code_of(bytecode):
    assert bytecode[:4] == importlib.util.MAGIC_NUMBER
    assert int.from_bytes(bytecode[4:8], "little") == UNCHECKED
    return marshal.loads(bytecode[HEADER:])


@pytest.fixture
def module(tmp_path):
    """A module whose bytecode Python has cached."""
    path = tmp_path / "cached.py"
    path.write_text("def answer():\n    return [one for one in (lambda: 41)]\n", encoding="utf-8")
    importlib.machinery.SourceFileLoader("cached", str(path)).get_code("cached")
    assert Path(importlib.util.cache_from_source(str(path))).exists()
    return path


def test_operations_stay_on_the_driver():
    with zipfile.ZipFile(BytesIO(archives.package_archive())) as archive:
        assert not [name for name in archive.namelist() if name.startswith("penstock/ops/")]


def test_each_module_is_there_with_bytecode_whose_files_are_of_the_archive():
    root = Path(penstock.__file__).parent
    with zipfile.ZipFile(BytesIO(archives.package_archive())) as archive:
        names = set(archive.namelist())
        for path in root.rglob("*.py"):
            if root / "ops" in path.parents:
                continue
            name = f"penstock/{path.relative_to(root).as_posix()}"
            assert archive.read(name) == path.read_bytes()
            found = code_of(archive.read(name + "c"))
            assert {one.co_filename for one in codes_in(found)} == {ARCHIVE_ROOT + name}
            names -= {name, name + "c"}
    assert not names


def test_bytecode_that_is_cached_is_not_compiled_again(module, monkeypatch):
    monkeypatch.setattr("builtins.compile", None)
    found = code_of(archives.bytecode_of(module, module.read_bytes(), "/there.py"))
    assert {one.co_filename for one in codes_in(found)} == {"/there.py"}
    assert [one.co_name for one in codes_in(found)][:2] == ["<module>", "answer"]


def test_bytecode_of_a_source_that_has_changed_is_not_used(module):
    before = module.stat()
    module.write_text("ANSWER = 42\n", encoding="utf-8")
    os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))
    found = {}
    exec(code_of(archives.bytecode_of(module, module.read_bytes(), "/there.py")), found)
    assert found["ANSWER"] == 42


def test_a_folder_in_which_nothing_can_be_cached_is_no_matter(module, monkeypatch):
    """As in an image whose files are another user's."""
    Path(importlib.util.cache_from_source(str(module))).unlink()
    monkeypatch.setattr(archives.SourceFileLoader, "set_data", lambda *_, **__: None)
    found = {}
    exec(code_of(archives.bytecode_of(module, module.read_bytes(), "/there.py")), found)
    assert callable(found["answer"])
