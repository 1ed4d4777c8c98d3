"""What a program brings for its functions: archives in their working directory, packages on their path, in both runtime modes."""

import importlib
import sys
import zipfile
from pathlib import Path

import pytest

from penstock.common import Configuration
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.engine.model.errors import ConfigurationError, JobExecutionError
from tests.tools.hosting.target_folders import COMPILED, install, write

MODES = [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH]


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "words.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("lists/greetings.txt", "hello")
    return str(path)


@pytest.fixture
def packages(tmp_path):
    """A folder with a package for pip, and the requirements file that names it."""
    folder = tmp_path / "packages"
    folder.mkdir()
    with zipfile.ZipFile(folder / "shouting-1.5-py3-none-any.whl", "w") as wheel:
        wheel.writestr("shouting/__init__.py", "def shout(word):\n    return word.upper() + '!'\n")
        info = "shouting-1.5.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: shouting\nVersion: 1.5\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("shouting==1.5\n")
    return str(requirements), str(folder)


def shouted(_number):
    from shouting import shout

    return shout(Path("data/lists/greetings.txt").read_text())


@pytest.mark.spark
@pytest.mark.parametrize("mode", [MODES[0], pytest.param(MODES[1], marks=pytest.mark.long)])
def test_archives_are_in_the_working_directory_and_requirements_are_importable(
    spark_cluster, archive, packages, mode
):
    env = StreamExecutionEnvironment.get_execution_environment().set_runtime_mode(mode)
    env.add_python_archive(archive, "data")
    env.set_python_requirements(*packages)
    assert list(env.from_collection([1]).map(shouted).execute_and_collect()) == ["HELLO!"]


def at_their_own_name(_number):
    return Path("words.zip/lists/greetings.txt").read_text(), Path("more/lists").is_dir()


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("mode", [MODES[0], pytest.param(MODES[1], marks=pytest.mark.long)])
def test_the_configuration_may_name_them_and_none_of_it_is_there_in_another_job(
    spark_cluster, archive, packages, mode
):
    given = {
        "python.archives": f"{archive}, {archive}#more",
        "python.requirements": "#".join(packages),
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(given))
    env.set_runtime_mode(mode)
    found = env.from_collection([1]).map(at_their_own_name).execute_and_collect()
    assert list(found) == [("hello", True)]

    env = StreamExecutionEnvironment.get_execution_environment().set_runtime_mode(mode)
    found = env.from_collection([1]).map(is_left).execute_and_collect()
    assert list(found) == [(False, False)]


def is_left(_number):
    import importlib.util

    return Path("words.zip").exists(), importlib.util.find_spec("shouting") is not None


@pytest.mark.spark
def test_what_cannot_be_brought_is_told_at_submit(spark_cluster, tmp_path):
    text = tmp_path / "words.txt"
    text.write_text("hello")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.add_python_archive(str(text))
    env.from_collection([1]).print()
    with pytest.raises(ConfigurationError, match=r"words\.txt.*\.tar\.gz"):
        env.execute()

    requirements = tmp_path / "requirements.txt"
    requirements.write_text("there-is-no-such-package==7\n")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_python_requirements(str(requirements), str(tmp_path))
    env.from_collection([1]).print()
    with pytest.raises(
        ConfigurationError, match=r"(?s)requirements\.txt.*there-is-no-such-package"
    ):
        env.execute()


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_a_package_of_a_target_folder_hides_no_installed_one_and_is_named_where_it_is_missing(
    spark_cluster, packages, mode, tmp_path, monkeypatch
):
    half = {"shouting/__init__.py": "def shout(word):\n    return 'of the driver'\n"}
    install(tmp_path / "target", "shouting", "1.4", half | {f"shouting/{COMPILED}": ""})
    monkeypatch.syspath_prepend(str(tmp_path / "target"))
    importlib.import_module("shouting")
    try:
        env = StreamExecutionEnvironment.get_execution_environment().set_runtime_mode(mode)
        with pytest.raises(JobExecutionError, match=r"Install shouting==1\.4 on the executors"):
            list(env.from_collection(["hello"]).map(told_by_package).execute_and_collect())
        env = StreamExecutionEnvironment.get_execution_environment().set_runtime_mode(mode)
        env.set_python_requirements(*packages)
        found = env.from_collection(["hello"]).map(told_by_package).execute_and_collect()
        assert list(found) == ["HELLO!"]
    finally:
        del sys.modules["shouting"]


@pytest.mark.spark
@pytest.mark.parametrize("mode", MODES)
def test_packages_of_the_program_are_whole_on_executors(spark_cluster, mode, tmp_path, monkeypatch):
    """Nothing names them but an import: a package in a `src` folder, and one without `__init__`."""
    write(tmp_path, {"whole_here/__init__.py": "", "whole_here/words/one.txt": "hello"})
    write(tmp_path, {"whole_here/late.py": "from . import part", "whole_here/part.py": ""})
    write(tmp_path, {"space_here/inner/first.py": "", "space_here/inner/late.py": "word = '!'"})
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("whole_here", "space_here.inner.first"):
        importlib.import_module(name)
    try:
        env = StreamExecutionEnvironment.get_execution_environment().set_runtime_mode(mode)
        found = env.from_collection([1]).map(of_late_imports).execute_and_collect()
        assert list(found) == ["hello!"]
    finally:
        for name in [n for n in sys.modules if n.startswith(("whole_here", "space_here"))]:
            del sys.modules[name]


def of_late_imports(_number):
    import space_here.inner.late
    import whole_here.late

    words = Path(whole_here.late.__file__).parent / "words"
    return (words / "one.txt").read_text() + space_here.inner.late.word


def told_by_package(word):
    from shouting import shout

    return shout(word)
