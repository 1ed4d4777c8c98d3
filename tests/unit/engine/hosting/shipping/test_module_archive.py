"""A program's own modules, unpacked for this user alone."""

import io
import zipfile

import pytest

from penstock.engine.hosting.shipping.module_archive import unpack
from penstock.engine.model.errors import ExternalError
from tests.tools.permissions import mode, open_to_others, umask


def archive(*names):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for name in names:
            file.writestr(name, b"" if name.endswith("/") else name)
    return made.getvalue()


def test_files_lie_where_the_archive_names_them_and_nobody_else_may_read_them(tmp_path):
    names = ("one.py", "package/__init__.py", "package/deep/two.py", "empty/")
    with umask(0):
        unpack(archive(*names), str(tmp_path))
    for name in names[:3]:
        assert (tmp_path / name).read_text() == name
    assert mode(tmp_path / "empty") == 0o700
    assert open_to_others(tmp_path) == {}


@pytest.mark.parametrize("name", ["../out.py", "a/../../out.py", "/out.py"])
def test_a_file_outside_of_the_folder_is_refused(tmp_path, name):
    (tmp_path / "in").mkdir()
    with pytest.raises(ExternalError, match="outside its directory"):
        unpack(archive(name), str(tmp_path / "in"))
    assert list(tmp_path.iterdir()) == [tmp_path / "in"]
