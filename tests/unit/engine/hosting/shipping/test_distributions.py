"""Whose a module is that lies outside of the installed packages, by what the packaging specifications say of a folder."""

import zipfile

import pytest

from penstock.engine.hosting.shipping.program_modules import Ownership, owners_in
from tests.tools.hosting.target_folders import COMPILED, install, write


def owner(folder, inside):
    ownership = Ownership()
    return ownership.owner_of(ownership.unit_of(str(folder), inside))


def test_a_record_names_packages_and_modules_of_its_distribution(tmp_path):
    install(tmp_path, "zippy", "1.2", {"zippy/__init__.py": "", "zippy/fast.py": "", "six6.py": ""})
    write(tmp_path, {"mine/__init__.py": "", "mine.py": ""})
    assert owner(tmp_path, "zippy/fast.py") == "zippy==1.2"
    assert owner(tmp_path, "zippy/made_later.py") == "zippy==1.2"
    assert owner(tmp_path, "six6.py") == "zippy==1.2"
    assert owner(tmp_path, "mine/__init__.py") is None
    assert owner(tmp_path, "mine.py") is None


def test_of_a_namespace_that_several_share_each_has_its_own(tmp_path):
    install(tmp_path, "company-io", "3", {"company/io/__init__.py": "", "company/loose.py": ""})
    write(tmp_path, {"company/rules/__init__.py": "", "company/rules.py": ""})
    assert owner(tmp_path, "company/io/__init__.py") == "company-io==3"
    assert owner(tmp_path, "company/loose.py") == "company-io==3"
    assert owner(tmp_path, "company/rules/__init__.py") is None
    assert owner(tmp_path, "company/rules.py") is None


@pytest.mark.parametrize("told", ["old_style\n", None])
def test_a_distribution_without_a_record_has_what_its_top_level_names(tmp_path, told):
    info = "old_style-2.egg-info"
    write(tmp_path, {"old_style/__init__.py": "", "mine.py": ""})
    write(tmp_path, {f"{info}/PKG-INFO": "Metadata-Version: 1.1\nName: old-style\nVersion: 2\n"})
    if told:
        write(tmp_path, {f"{info}/top_level.txt": told})
    assert owner(tmp_path, "old_style/__init__.py") == "old-style==2"
    assert owner(tmp_path, "mine.py") is None


@pytest.mark.parametrize("source", ["", "src/"])
def test_a_checkout_that_is_developed_is_the_programs_own(tmp_path, source):
    """`pip install -e` leaves an egg-info among the sources."""
    write(tmp_path, {"pyproject.toml": "", f"{source}mine/__init__.py": ""})
    info = f"{source}mine.egg-info"
    write(tmp_path, {f"{info}/PKG-INFO": "Metadata-Version: 1.1\nName: mine\nVersion: 2\n"})
    write(tmp_path, {f"{info}/top_level.txt": "mine\n", f"{info}/SOURCES.txt": "mine/__init__.py"})
    assert owner(tmp_path / source, "mine/__init__.py") is None


def test_a_package_with_compiled_modules_is_nobodys_but_not_shipped(tmp_path):
    write(tmp_path, {"fast/__init__.py": "", f"fast/deep/{COMPILED}": "", "plain/__init__.py": ""})
    write(tmp_path, {COMPILED: "", "plain/env/pyvenv.cfg": "", f"plain/env/{COMPILED}": ""})
    assert owner(tmp_path, "fast/__init__.py") == ""
    assert owner(tmp_path, COMPILED) == ""
    assert owner(tmp_path, "plain/__init__.py") is None


def test_a_unit_has_the_name_that_is_imported(tmp_path):
    write(tmp_path, {"space/pack/__init__.py": "", "space/pack/sub/x.py": "", "alone.py": ""})
    units = [
        Ownership().unit_of(str(tmp_path), inside)
        for inside in ("space/pack/sub/x.py", "alone.py", COMPILED)
    ]
    assert [one.module for one in units] == ["space.pack", "alone", "_core"]


def test_a_distribution_that_comes_later_is_seen(tmp_path):
    assert owners_in(str(tmp_path)) == {}
    install(tmp_path, "zippy", "1.2", {"zippy.py": ""})
    assert owners_in(str(tmp_path))["zippy.py"] == "zippy==1.2"


def test_a_zip_that_the_program_brings_is_its_own(tmp_path):
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as archive:
        archive.writestr("helper.py", "")
    assert owner(tmp_path / "lib.zip", "helper.py") is None
