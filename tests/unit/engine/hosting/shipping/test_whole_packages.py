"""A package goes along whole: what functions import later, and data files, as far as it is small."""

import io
import sys
import zipfile

from penstock.engine.hosting.shipping import program_modules
from penstock.engine.hosting.shipping.program_modules import (
    Ownership,
    Place,
    companions,
    place_of,
    user_modules_archive,
)
from tests.tools.hosting.target_folders import COMPILED, install, write


def found(folder, place, **options):
    return set(companions([Place(str(folder), place)], Ownership(), **options))


def test_modules_and_data_files_of_a_package_but_nothing_hidden(tmp_path):
    write(tmp_path, {"pack/__init__.py": "", "pack/deep/late.py": "", "pack/words.txt": "to be"})
    write(tmp_path, {"pack/.env": "secret", "pack/.git/x": "", "pack/__pycache__/a.pyc": ""})
    write(tmp_path, {"pack/env/pyvenv.cfg": "", "pack/env/lib/x.py": "", "other/__init__.py": ""})
    given = companions([Place(str(tmp_path), "pack")], Ownership())
    assert set(given) == {"pack/__init__.py", "pack/deep/late.py", "pack/words.txt"}
    assert given["pack/words.txt"] == b"to be"


def test_the_folder_of_a_module_without_a_package_but_nothing_of_others(tmp_path):
    write(tmp_path, {"space/own.py": "", "space/late.py": "", "space/inner/late.py": ""})
    write(tmp_path, {f"space/fast/{COMPILED}": "", "space/fast/__init__.py": ""})
    install(tmp_path, "theirs", "1.0", {"space/theirs/__init__.py": ""})
    place = place_of(Ownership(), str(tmp_path), "space/own.py")
    assert place == Place(str(tmp_path), "space")
    assert found(tmp_path, "space") == {"space/own.py", "space/late.py", "space/inner/late.py"}


def test_a_module_on_the_import_path_itself_has_no_companions(tmp_path):
    write(tmp_path, {"alone.py": "", "other.py": ""})
    assert place_of(Ownership(), str(tmp_path), "alone.py") is None


def test_a_package_in_a_zip(tmp_path):
    path = tmp_path / "lib.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("packed/__init__.py", "packed/late.py", "packed/words.txt", "other.py"):
            archive.writestr(name, name)
    place = place_of(Ownership(), str(path), "packed/late.py")
    assert companions([place], Ownership()) == {
        name: name.encode() for name in ("packed/__init__.py", "packed/late.py", "packed/words.txt")
    }
    assert place_of(Ownership(), str(path), "other.py") is None


def test_what_is_too_large_goes_along_with_its_modules_or_not_at_all(tmp_path, monkeypatch):
    write(tmp_path, {"pack/__init__.py": "", "pack/late.py": "#" * 60, "pack/model.bin": "x" * 50})
    assert found(tmp_path, "pack", limit_bytes=110) >= {"pack/late.py", "pack/model.bin"}
    assert found(tmp_path, "pack", limit_bytes=109) == {"pack/__init__.py", "pack/late.py"}
    assert found(tmp_path, "pack", limit_bytes=59) == set()
    write(tmp_path, {"zoo/__init__.py": "", "zoo/data": "x" * 10})
    places = [Place(str(tmp_path), "zoo"), Place(str(tmp_path), "pack")]
    assert "zoo/data" not in companions(places, Ownership(), limit_bytes=119)
    monkeypatch.setattr(program_modules, "_LIMIT_FILES", 2)
    assert found(tmp_path, "pack") == {"pack/__init__.py", "pack/late.py"}


def test_a_link_that_leads_nowhere_is_left_out(tmp_path):
    write(tmp_path, {"pack/__init__.py": ""})
    (tmp_path / "pack" / "gone.txt").symlink_to(tmp_path / "nowhere")
    assert found(tmp_path, "pack") == {"pack/__init__.py"}


def test_a_loaded_module_brings_its_package(tmp_path, monkeypatch):
    """An installed checkout, a `src` folder, a .pth file: its folder is on the import path, and the main script is elsewhere."""
    write(tmp_path, {"src/whole_own/__init__.py": "", "src/whole_own/late.py": ""})
    write(tmp_path, {"src/whole_own/words.txt": "to be"})
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    __import__("whole_own")
    try:
        archive = zipfile.ZipFile(io.BytesIO(user_modules_archive()))
    finally:
        del sys.modules["whole_own"]
    assert {"whole_own/late.py", "whole_own/words.txt"} <= set(archive.namelist())
