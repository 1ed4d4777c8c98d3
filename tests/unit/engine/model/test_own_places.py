"""Names of our own modules and files that stand as text are those of real modules."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import penstock
from penstock.engine.hosting.network.wire.messages import _OURS
from penstock.engine.hosting.shipping.package_archive import package_archive
from penstock.engine.hosting.taskmanager import child
from penstock.engine.hosting.taskmanager import process as taskmanager_process
from penstock.engine.hosting.taskmanager.task.thread import TaskThread
from penstock.engine.model import messages
from penstock.engine.model.options.catalogue import OPTIONS
from penstock.engine.model.own_places import PACKAGE_FOLDER, is_engine, is_ours, is_task_thread
from penstock.engine.runtime.task.chain import OperatorChain

PACKAGE = Path(penstock.__file__).parent
MODULE = re.compile(r"penstock(?:\.[A-Za-z_]\w*)+")
ARCHIVE = "penstock.zip"
LOGS = {"penstock.traces", "penstock.events"}
"""Names of logs that users set up, and that are of no module."""
IMPORT = re.compile(r"from (penstock[\w.]*) import (\w+)")


def texts():
    """Every string of the package's code that is no docstring, with its file."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if is_text and id(node) not in docs:
                yield path.relative_to(PACKAGE.parent).as_posix(), node.value


def is_importable(name: str) -> bool:
    """A module, or a name in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        return all(hasattr(found, part) for part in parts[length : length + 1])
    return False


def test_every_text_that_is_the_name_of_a_module_names_one_that_is_there():
    """What Spark's workers import, what a TaskManager's process starts with, whose names tables of PyFlink's former modules give."""
    named = {
        (path, text)
        for path, text in texts()
        if MODULE.fullmatch(text) and text not in {*OPTIONS, ARCHIVE, *LOGS}
    }
    assert (
        "penstock/engine/hosting/spark/executor_task.py",
        "penstock.engine.hosting.taskmanager.supervisor",
    ) in named
    assert [one for one in sorted(named) if not is_importable(one[1])] == []


def test_every_import_that_stands_in_a_text_works():
    found = {(path, *pair) for path, text in texts() for pair in IMPORT.findall(text)}
    assert any(path.endswith("taskmanager/child.py") for path, *_ in found)
    for path, module, name in sorted(found):
        assert hasattr(importlib.import_module(module), name), path


def test_the_threads_of_tasks_begin_in_the_file_that_stacks_look_for():
    assert is_task_thread(f'  File "{inspect.getfile(TaskThread)}", line 1 in _run')
    assert not is_task_thread(f'  File "{threading.__file__}", line 1 in run')


def test_users_functions_are_called_by_files_of_the_engine():
    assert is_engine(inspect.getfile(OperatorChain))
    assert not is_engine(inspect.getfile(TaskThread))


def test_all_of_our_files_are_ours_and_no_other():
    ours = [
        module.__file__
        for name, module in sys.modules.items()
        if name.split(".")[0] == "penstock" and getattr(module, "__file__", None)
    ]
    assert len(ours) > 100
    assert all(is_ours(file) and file.startswith(PACKAGE_FOLDER) for file in ours)
    assert not is_ours(threading.__file__) and not pytest.__file__.startswith(PACKAGE_FOLDER)


def test_the_wire_takes_messages_only():
    assert messages.__name__.startswith(_OURS)


def test_the_processes_of_taskmanagers_are_known_by_the_module_that_they_run():
    """Tests, the audit and benchmarks look for them, and would find none left if they looked for another name."""
    assert taskmanager_process.__name__ == child.PROCESS_NAME
    assert f"from {child.PROCESS_NAME} import main" in child.BOOT


IN_ARCHIVE = """
import sys
sys.path.insert(0, sys.argv[1])
from penstock.engine.model.texts.error_text import text_for_user
from penstock.engine.runtime.records.output_copies import opened

def results(value):
    return opened(value)

try:
    results(7)
except TypeError as error:
    print(text_for_user(error))
"""


def test_frames_of_the_archive_that_executors_import_are_ours(tmp_path):
    """Their bytecode has file names of its own, because nobody knows where the archive will lie."""
    archive, program = tmp_path / ARCHIVE, tmp_path / "program.py"
    archive.write_bytes(package_archive())
    program.write_text(IN_ARCHIVE)
    command = [sys.executable, program, archive]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert 'program.py", line 8, in results' in done.stdout
    assert f"{ARCHIVE}/penstock" not in done.stdout
