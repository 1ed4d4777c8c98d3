"""What goes to the TaskManagers without being asked for, and what must not."""

import importlib
import importlib.machinery
import io
import json
import subprocess
import sys
import types
import zipfile

import pytest

from penstock.engine.hosting.shipping import missing_packages, program_modules
from penstock.engine.hosting.shipping.pickling import deserialize, dumps_records, serialize
from penstock.engine.hosting.shipping.program_modules import Ownership, user_modules_archive
from penstock.engine.model.errors import ConfigurationError
from tests.spark import programs
from tests.tools.hosting.target_folders import COMPILED, install
from tests.tools.hosting.target_folders import write as write_texts


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


def test_what_was_pickled_by_value_is_opened_without_importing_pyspark():
    made = serialize(lambda value: value + 1)
    script = (
        "import sys\n"
        "from penstock.engine.hosting.shipping import pickling\n"
        "pickling.load_cloudpickle_alone()\n"
        "function = pickling.deserialize(sys.stdin.buffer.read())\n"
        "assert function(1) == 2 and 'pyspark' not in sys.modules\n"
        "from pyspark import cloudpickle\n"  # who wants all of it still gets it
        "assert cloudpickle.loads(cloudpickle.dumps(function))(2) == 3\n"
        "assert pickling.deserialize(pickling.serialize(function))(3) == 4\n"
    )
    subprocess.run([sys.executable, "-c", script], input=made, check=True)


# ---------------------------------------------------------------------- out of a zip, and what never goes


@pytest.fixture
def importing(monkeypatch):
    """Imports from a place; forgets it afterwards."""
    imported = []

    def do(place, name):
        monkeypatch.syspath_prepend(str(place))
        imported.append(name)
        return importlib.import_module(name)

    yield do
    for name in imported:
        sys.modules.pop(name, None)


def test_a_module_out_of_a_zip_goes_along(tmp_path, importing):
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as archive:
        archive.writestr("zipped_helper.py", "answer = 42")
    importing(tmp_path / "lib.zip", "zipped_helper")
    shipped = zipfile.ZipFile(io.BytesIO(user_modules_archive()))
    assert shipped.read("zipped_helper.py") == b"answer = 42"


def test_a_module_whose_file_is_gone_is_left_out(tmp_path, importing):
    (tmp_path / "gone_helper.py").write_text("x = 1")
    importing(tmp_path, "gone_helper")
    (tmp_path / "gone_helper.py").unlink()
    assert "gone_helper.py" not in names(user_modules_archive())


@pytest.mark.parametrize("name", ["pyspark", "py4j", "pyarrow", "numpy", "pandas", "cloudpickle"])
def test_what_executors_have_is_never_shipped(tmp_path, monkeypatch, name):
    (tmp_path / name).mkdir()
    for inside in ("__init__.py", "part.py"):
        (tmp_path / name / inside).write_text("")
    module = types.ModuleType(f"{name}.part")
    module.__file__ = str(tmp_path / name / "part.py")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    as_main(monkeypatch, tmp_path / "program.py")
    assert not [n for n in names(user_modules_archive()) if n.startswith(f"{name}/")]


# ---------------------------------------------------------------------- beside the main script


def as_main(monkeypatch, script, package=""):
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("")
    main = types.ModuleType("__main__")
    main.__file__ = str(script)
    if package:
        main.__spec__ = importlib.machinery.ModuleSpec(f"{package}.{script.stem}", None)
    monkeypatch.setitem(sys.modules, "__main__", main)


def write(folder, *paths):
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("")


def test_modules_and_packages_beside_the_main_script_go_along(tmp_path, monkeypatch):
    write(tmp_path, "beside.py", "pack/__init__.py", "pack/deep/inner.py")
    write(
        tmp_path, ".hidden.py", ".git/__init__.py", "pack/__pycache__/old.py", "data/no_package.py"
    )
    write(tmp_path, "pack/.cache/x.py", "pack/env/pyvenv.cfg", "pack/env/lib/installed.py")
    write(tmp_path, "venv/__init__.py", "venv/pyvenv.cfg", "penstock/__init__.py")
    as_main(monkeypatch, tmp_path / "program.py")
    assert set(program_modules.modules_next_to_main(Ownership())) == {
        "beside.py",
        "pack/__init__.py",
        "pack/deep/inner.py",
    }
    assert {"beside.py", "pack/deep/inner.py"} <= names(user_modules_archive())


def test_of_a_main_script_inside_a_package_only_the_package_goes_along(tmp_path, monkeypatch):
    write(tmp_path, "pack/__init__.py", "pack/logging.py", "pack/sub/__init__.py", "other.py")
    as_main(monkeypatch, tmp_path / "pack" / "sub" / "program.py", package="pack.sub")
    found = set(program_modules.modules_next_to_main(Ownership()))
    assert found == {"pack/__init__.py", "pack/logging.py", "pack/sub/__init__.py"}


def test_nothing_is_added_without_a_main_script_or_for_an_installed_program(tmp_path, monkeypatch):
    write(tmp_path, "beside.py")
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    assert program_modules.modules_next_to_main(Ownership()) == {}
    as_main(monkeypatch, tmp_path / "program.py")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert program_modules.modules_next_to_main(Ownership()) == {}


def test_files_beside_the_main_script_stop_silently_at_their_limit(tmp_path, monkeypatch):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.py").write_text("#" * 2_000_000)
    as_main(monkeypatch, tmp_path / "program.py")
    assert set(program_modules.modules_next_to_main(Ownership())) == {"a.py", "b.py"}


def test_folders_that_cannot_be_read_are_passed_by(tmp_path, monkeypatch):
    write(tmp_path, "beside.py", "secret/__init__.py")
    as_main(monkeypatch, tmp_path / "program.py")
    stat = program_modules.os.stat

    def refusing(path, *args, **kwargs):  # root may read everything, so the refusal is played
        if "secret" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *args, **kwargs)

    monkeypatch.setattr(program_modules.os, "stat", refusing)
    assert set(program_modules.modules_next_to_main(Ownership())) == {"beside.py"}


# ---------------------------------------------------------------------- what has a distribution, or is compiled


def not_shipped(archive: bytes) -> dict[str, str]:
    content = zipfile.ZipFile(io.BytesIO(archive))
    return json.loads(content.read(missing_packages.FILE))


def test_a_package_of_a_target_folder_is_named_and_not_shipped(tmp_path, importing):
    """Shipped without its compiled modules, it would hide the one that an executor has."""
    files = {"zippy_lib/__init__.py": "", "zippy_lib/py.py": "", f"zippy_lib/{COMPILED}": ""}
    install(tmp_path, "zippy", "1.2", files)
    write_texts(tmp_path, {"own_helper.py": "x = 1", "fast_own/__init__.py": ""})
    write_texts(tmp_path, {f"fast_own/{COMPILED}": "", "space_lib/fast/__init__.py": ""})
    write_texts(tmp_path, {f"space_lib/fast/{COMPILED}": "", "space_lib/slow/__init__.py": ""})
    for name in (
        "zippy_lib.py",
        "zippy_lib",
        "own_helper",
        "fast_own",
        "space_lib.fast",
        "space_lib.slow",
    ):
        importing(tmp_path, name)
    made = user_modules_archive()
    shipped = names(made)
    assert {"own_helper.py", "space_lib/slow/__init__.py"} <= shipped
    assert not [n for n in shipped if n.startswith(("zippy_lib", "fast_own", "space_lib/fast"))]
    told = not_shipped(made)
    assert told["zippy_lib"] == "zippy==1.2"
    assert told["fast_own"] == told["space_lib.fast"] == ""
    assert "own_helper" not in told


def test_a_compiled_module_outside_of_packages_is_named(tmp_path, monkeypatch):
    module = types.ModuleType("fast_alone")
    module.__file__ = str(tmp_path / COMPILED.replace("_core", "fast_alone"))
    write(tmp_path, COMPILED.replace("_core", "fast_alone"))
    monkeypatch.setitem(sys.modules, "fast_alone", module)
    assert not_shipped(user_modules_archive())["fast_alone"] == ""


def test_beside_the_main_script_only_the_programs_own_goes_along(tmp_path, monkeypatch):
    install(tmp_path, "zippy", "1.2", {"zippy_lib/__init__.py": "", "zippy_one.py": ""})
    write(tmp_path, "own.py", "fast_own/__init__.py", f"fast_own/{COMPILED}")
    as_main(monkeypatch, tmp_path / "program.py")
    assert set(program_modules.modules_next_to_main(Ownership())) == {"own.py"}


def test_a_named_folder_goes_along_whole(tmp_path):
    install(tmp_path, "zippy", "1.2", {"zippy_lib/__init__.py": "", f"zippy_lib/{COMPILED}": ""})
    shipped = names(user_modules_archive([str(tmp_path)]))
    assert {"zippy_lib/__init__.py", f"zippy_lib/{COMPILED}"} <= shipped
