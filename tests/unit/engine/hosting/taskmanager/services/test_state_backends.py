"""What the keyed state backends of a TaskManager read. The jobs with RocksDB cover everything else."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading

import pytest

from penstock.engine.hosting.taskmanager.services import state_backends
from penstock.engine.hosting.taskmanager.services.state_backends import (
    PREFIX,
    IoDirectories,
    StateBackends,
    sweep,
)
from penstock.engine.model.errors import ResultWriteError, UserError
from penstock.engine.model.ids import AllocationId
from penstock.engine.runtime.state.settings import StateBackendSettings

# Says its path, then dies as from kill -9 when stdin ends.
DYING = """
import os, sys
from penstock.engine.hosting.taskmanager.services.state_backends import IoDirectories
path = IoDirectories([sys.argv[1]], "dying").new_path()
open(path, "w").close()
print(path, flush=True)
sys.stdin.read()
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def directories(tmp_path):
    made = IoDirectories([str(tmp_path)], "tm-1")
    yield made
    made.close()


def test_nothing_is_made_before_a_file_is_wanted(directories, tmp_path):
    assert os.listdir(tmp_path) == []
    path = directories.new_path()
    assert not os.path.exists(path)
    (folder,) = directories.paths
    assert os.path.dirname(path) == folder
    assert os.path.basename(folder).startswith(f"{PREFIX}tm-1-")
    assert os.stat(folder).st_mode & 0o777 == 0o700


def test_files_have_names_of_their_own_and_go_to_all_roots_in_turn(tmp_path):
    roots = [str(tmp_path / "a"), str(tmp_path / "b")]
    made = IoDirectories(roots, "tm")
    paths = [made.new_path() for _ in range(4)]
    assert len(set(paths)) == 4
    assert [path.startswith(roots[0]) for path in paths] == [True, False, True, False]
    made.close()
    assert [os.listdir(root) for root in roots] == [[], []]


def test_a_directory_for_a_database_stays_ours_when_somebody_exchanges_the_one_above(
    directories, tmp_path
):
    paths = [directories.new_directory() for _ in range(2)]
    assert len(set(paths)) == 2
    os.mkdir(paths[0])
    (folder,) = directories.paths
    assert os.listdir(folder).count(os.path.basename(paths[0])) == 1
    os.rename(folder, tmp_path / "away")
    os.mkdir(folder)
    os.mkdir(paths[1])
    assert {os.path.basename(path) for path in paths} <= set(os.listdir(tmp_path / "away"))
    assert os.listdir(folder) == []
    os.rmdir(folder)
    os.rename(tmp_path / "away", folder)


def test_directories_that_somebody_has_removed_are_made_anew(tmp_path):
    roots = [tmp_path / "a", tmp_path / "b"]
    made = IoDirectories([str(root) for root in roots], "tm")
    before = [made.new_directory() for _ in roots]
    shutil.rmtree(roots[0])
    after = [made.new_directory() for _ in roots]
    for directory in after:
        os.mkdir(directory)
    assert len({*before, *after}) == 4
    assert [root.is_dir() for root in roots] == [True, True]
    shutil.rmtree(roots[1])
    roots[1].touch()
    assert made.new_path().startswith(str(roots[0]))
    with pytest.raises(ResultWriteError, match=r"io\.tmp\.dirs"):
        made.new_path()
    made.close()
    assert os.listdir(roots[0]) == []


def test_a_directory_that_somebody_exchanges_while_it_is_made_is_not_used(tmp_path, monkeypatch):
    made = IoDirectories([str(tmp_path)], "tm")
    real = tempfile.mkdtemp

    def exchanged(**named):
        folder = real(**named)
        os.chmod(folder, 0o777)
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", exchanged)
    with pytest.raises(ResultWriteError, match=r"somebody has replaced it.*io\.tmp\.dirs"):
        made.new_path()
    made.close()


def test_everything_goes_at_the_end_and_nothing_comes_after_it(directories, tmp_path):
    with open(directories.new_path(), "w") as file:
        file.write("x")
    directories.close()
    directories.close()
    assert os.listdir(tmp_path) == []
    with pytest.raises(ResultWriteError, match="ending"):
        directories.new_path()


def test_a_directory_that_cannot_be_made_says_which_option_to_change(tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    made = IoDirectories([str(in_the_way / "below")], "tm")
    with pytest.raises(ResultWriteError, match=r"below.*io\.tmp\.dirs"):
        made.new_path()


def test_live_taskmanagers_do_not_sweep_each_other(directories, tmp_path):
    path = directories.new_path()
    other = IoDirectories([str(tmp_path)], "tm-2")
    other.new_path()
    sweep(str(tmp_path))
    assert os.path.isdir(os.path.dirname(path))
    assert len(os.listdir(tmp_path)) == 2
    other.close()


def test_what_a_killed_process_left_is_removed_by_the_next_that_starts(directories, tmp_path):
    mine = directories.new_path()
    with subprocess.Popen(
        [sys.executable, "-c", DYING, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        left = process.stdout.readline().strip()
        IoDirectories([str(tmp_path)], "while it lives").close()
        assert os.path.exists(left)
        process.stdin.close()
        assert process.wait(30) == -9
    assert os.path.exists(left)
    IoDirectories([str(tmp_path)], "afterwards").close()
    assert not os.path.exists(os.path.dirname(left))
    assert os.path.isdir(os.path.dirname(mine))


def test_directories_of_others_and_half_made_ones_stay(tmp_path):
    (tmp_path / "penstock-new-young").mkdir()
    (tmp_path / "somebody").mkdir()
    (tmp_path / "penstock-io-file").write_text("")
    sweep(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["penstock-io-file", "penstock-new-young", "somebody"]
    os.utime(tmp_path / "penstock-new-young", (0, 0))
    sweep(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["penstock-io-file", "somebody"]


def test_a_root_that_is_not_there_is_nothing_to_sweep(tmp_path):
    sweep(str(tmp_path / "nowhere"))
    assert os.listdir(tmp_path) == []


def test_a_directory_is_removed_beside_what_goes_on(tmp_path, monkeypatch):
    """Gigabytes take longer to remove than a cancelled task may take to end."""
    begun, may_go_on = threading.Event(), threading.Event()
    rmtree = shutil.rmtree

    def slow(path, **options):
        begun.set()
        assert may_go_on.wait(30)
        rmtree(path, **options)

    directories = IoDirectories([str(tmp_path)], "tm")
    made = directories.new_directory()
    os.makedirs(f"{made}/below")
    monkeypatch.setattr(state_backends.shutil, "rmtree", slow)
    directories.remove(made)
    assert begun.wait(30)
    assert os.path.isdir(made)  # and `remove` has returned
    may_go_on.set()
    directories.close()
    assert os.listdir(tmp_path) == []


OF_A_CLASS_THAT_IS_GONE = b"cdecimal\nGone\n."


def test_a_value_in_rocksdb_whose_class_is_gone_ends_the_job(tmp_path):
    backends = StateBackends(StateBackendSettings(True), IoDirectories([str(tmp_path)], "tm"))
    loads = backends.of_slot(AllocationId("slot")).keywords["settings"].loads
    with pytest.raises(
        UserError, match="a value of the state in RocksDB cannot be read.*Gone"
    ) as caught:
        loads(OF_A_CLASS_THAT_IS_GONE)
    assert not caught.value.is_recoverable
