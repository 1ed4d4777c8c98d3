"""What goes to the TaskManagers without being asked for, and what must not."""

import io
import zipfile

import pytest

from penstock.hosting.closures import deserialize, dumps_records, serialize, user_modules_archive
from penstock.model.errors import ConfigurationError
from tests.spark import programs


def names(archive: bytes) -> set[str]:
    return set(zipfile.ZipFile(io.BytesIO(archive)).namelist())


def test_the_users_own_modules_go_along_and_installed_ones_do_not():
    shipped = names(user_modules_archive())
    assert programs.__name__.replace(".", "/") + ".py" in shipped
    assert not [n for n in shipped if n.startswith(("numpy/", "pytest/", "penstock/", "json/"))]


def test_the_same_modules_give_the_same_bytes():
    assert user_modules_archive() == user_modules_archive()


def test_named_files_directories_and_archives_become_importable(tmp_path):
    (tmp_path / "alone.py").write_text("x = 1")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inside.py").write_text("y = 2")
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as archive:
        archive.writestr("packed/__init__.py", "z = 3")
    paths = [str(tmp_path / name) for name in ("alone.py", "folder", "lib.zip")]
    assert {"alone.py", "inside.py", "packed/__init__.py"} <= names(user_modules_archive(paths))


def test_a_missing_file_is_named():
    with pytest.raises(ConfigurationError, match="nowhere.py"):
        user_modules_archive(["nowhere.py"])


def test_functions_and_local_classes_travel_by_value():
    factor = 3

    class Event:
        def __init__(self, value):
            self.value = value

    times = deserialize(serialize(lambda event: event.value * factor))
    assert times(Event(2)) == 6
    assert deserialize(dumps_records([Event(5)]))[0].value == 5
