"""Modules of user code are imported anew by the next job of a process, those of libraries are not: docs/internals/workers.md."""

import importlib
import sys

import pytest

from penstock.engine.hosting.taskmanager.user_modules import forget_user_modules


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of the program, importable; what is imported from it is gone after the test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def before(folder):
    return frozenset(sys.modules)


def write(folder, path, text):
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    importlib.invalidate_caches()


def test_what_one_job_puts_into_a_module_the_next_one_does_not_find(folder, before):
    write(folder, "job_of_a_test.py", "SEEN = []\n")
    importlib.import_module("job_of_a_test").SEEN.append(1)
    assert forget_user_modules(before) == ["job_of_a_test"]
    assert importlib.import_module("job_of_a_test").SEEN == []


def test_a_package_is_forgotten_with_all_its_modules(folder, before):
    write(folder, "package_of_a_test/__init__.py", "")
    write(folder, "package_of_a_test/inner/deep.py", "")
    importlib.import_module("package_of_a_test.inner.deep")
    assert forget_user_modules(before) == [
        "package_of_a_test",
        "package_of_a_test.inner",
        "package_of_a_test.inner.deep",
    ]


def test_a_package_with_a_compiled_module_stays(folder, before):
    """Some of them can be imported only once in a process."""
    write(folder, "compiled_of_a_test/__init__.py", "")
    importlib.import_module("compiled_of_a_test")
    compiled = type(sys)("compiled_of_a_test.fast")
    compiled.__file__ = str(folder / "compiled_of_a_test" / "fast.so")
    sys.modules["compiled_of_a_test.fast"] = compiled
    assert forget_user_modules(before) == []


def test_modules_in_folders_of_libraries_stay(folder, before):
    write(folder, "requirement_of_a_test.py", "")
    importlib.import_module("requirement_of_a_test")
    assert forget_user_modules(before, [str(folder)]) == []


def test_pythons_own_modules_and_installed_packages_stay():
    names = {"json", "json.decoder", "hypothesis", "itertools"}
    for name in names:
        importlib.import_module(name)
    assert not names & set(forget_user_modules(frozenset(sys.modules) - names))


def test_what_was_there_before_stays(folder):
    write(folder, "early_of_a_test.py", "")
    importlib.import_module("early_of_a_test")
    assert forget_user_modules(frozenset(sys.modules)) == []
