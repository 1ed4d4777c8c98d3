"""Looking into a savepoint that a job has taken: what is shown is what the program put there."""

import shutil
import sys

import pandas as pd
import pytest

from penstock.datastream.savepoint import read_savepoint
from penstock.engine.hosting.os.file_systems import CheckpointDamaged
from penstock.engine.model.errors import ConfigurationError, ExternalError, UserError
from penstock.ops.cli.cli import main
from tests.tools.permissions import mode
from tests.tools.programs.checkpoint_programs import (
    Stage,
    Watcher,
    restarting_environment,
    wait_until_running,
)
from tests.tools.programs.remembering_program import (
    REMEMBERED,
    SPLITS,
    by_key,
    remembering,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A savepoint, taken when every split is at its fifth number."""
    stage = Stage("reader")
    env = restarting_environment(Watcher(), parallelism=SPLITS)
    client = remembering(env, stage, tmp_path_factory.mktemp("out"))
    wait_until_running(client)
    found = client.trigger_savepoint(str(tmp_path_factory.mktemp("savepoints"))).result()
    stage.gate.set()
    client.get_job_execution_result().result()
    return found


@pytest.mark.parametrize(("name", "value"), REMEMBERED)
def test_keyed_state_is_read_as_the_program_left_it(folder, name, value):
    assert by_key(read_savepoint(folder).keyed_state("remember", name)) == dict.fromkeys(
        range(SPLITS), value
    )


def test_state_becomes_a_table(folder):
    last = read_savepoint(folder).keyed_state("remember", "last").to_arrow()
    assert sorted(last.to_pylist(), key=lambda row: row["key"]) == [
        {"key": split, "value": 4} for split in range(SPLITS)
    ]
    rows = read_savepoint(folder).keyed_state("remember", "row").to_arrow()
    assert rows.column_names == ["key", "number", "text"]
    halves = read_savepoint(folder).keyed_state("remember", "halves")
    with pytest.raises(UserError, match=r"column 'value'.*to_pandas"):
        read_savepoint(folder).keyed_state("remember", "mixed").to_arrow()
    assert len(halves) == SPLITS


def test_state_becomes_a_data_frame(folder):
    """Any object is kept as it is; plain columns have a type of their own."""
    mixed = read_savepoint(folder).keyed_state("remember", "mixed").to_pandas()
    assert isinstance(mixed, pd.DataFrame)
    assert dict(zip(mixed["key"], mixed["value"], strict=True)) == {0: "text", 1: {1}, 2: {1}}
    assert (mixed["key"].dtype, mixed["value"].dtype) == ("int64", object)
    rows = read_savepoint(folder).keyed_state("remember", "row").to_pandas().sort_values("key")
    assert rows.to_dict("list") == {"key": [0, 1, 2], "number": [4, 4, 4], "text": ["4", "4", "4"]}
    assert rows["number"].sum() == 12


def test_without_pandas_there_is_the_table(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ExternalError, match=r"pandas is not installed.*to_arrow\(\)"):
        read_savepoint(folder).keyed_state("remember", "last").to_pandas()


def test_operators_are_shown_with_what_they_hold(folder):
    held, remember = read_savepoint(folder).operators()[:2]
    assert (held.uid, held.parallelism) == ("held", SPLITS)
    assert [state.elements for state in held.lists] == [SPLITS]
    assert held.coordinator_bytes > 0
    assert remember.uid == "remember"
    last = next(state for state in remember.keyed if state.name == "last")
    assert (last.rows, last.kind) == (SPLITS, "Value of Long without time to live")
    assert sum(last.groups.values()) == SPLITS
    assert remember.group_rows.total() == SPLITS * len(remember.keyed)
    assert remember.size_bytes > 0


@pytest.mark.parametrize(
    ("uid", "name", "what"),
    [
        ("nobody", "last", "no operator of uid or name 'nobody'; it has: held, remember"),
        ("remember", "first", "no keyed state 'first'.*it has: all, halves"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(folder, uid, name, what):
    with pytest.raises(ConfigurationError, match=what):
        read_savepoint(folder).keyed_state(uid, name)


def test_list_state_is_read(folder):
    savepoint = read_savepoint(folder)
    (state,) = savepoint.operators()[0].lists
    assert sorted(savepoint.list_state("held", state.name)) == [
        (split, 5) for split in range(SPLITS)
    ]
    with pytest.raises(ConfigurationError, match=f"it has: {state.name}"):
        savepoint.list_state("held", "other")


def test_the_command_line_shows_and_removes(folder, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    assert main(["savepoint", "inspect", str(copy)]) == 0
    shown = capsys.readouterr().out
    assert "(uid remember)" in shown
    assert "keyed state 'last': Value of Long without time to live, 3 rows" in shown
    assert "key groups: " in shown
    assert (
        main(["savepoint", "inspect", "--state", "remember", "last", "--rows", "2", str(copy)]) == 0
    )
    assert "... 1 more" in capsys.readouterr().out
    assert main(["savepoint", "dispose", str(copy)]) == 0
    assert not copy.exists()
    assert main(["savepoint", "inspect", str(copy)]) == 1
    assert "it is not there, or empty. Name the folder" in capsys.readouterr().err


@pytest.mark.parametrize("place", [".", "_metadata"], ids=["the folder", "the metadata"])
@pytest.mark.parametrize("bits", [0o020, 0o002], ids="{:o}".format)
def test_state_that_others_could_have_written_is_shown_but_not_opened(
    folder, tmp_path, place, bits
):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / place).chmod(mode(copy / place) | bits)
    for given in (copy, copy / "_metadata"):
        savepoint = read_savepoint(str(given))
        held, remember = savepoint.operators()[:2]
        assert (held.uid, remember.uid) == ("held", "remember")
        with pytest.raises(ConfigurationError, match=r"other users may write .*chmod "):
            savepoint.keyed_state("remember", "last")
        with pytest.raises(ConfigurationError, match=r"other users may write .*chmod "):
            savepoint.list_state("held", held.lists[0].name)


def test_a_torn_file_is_named(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "_metadata").write_bytes((copy / "_metadata").read_bytes()[:-1])
    with pytest.raises(CheckpointDamaged, match="copy/_metadata is incomplete or altered"):
        read_savepoint(str(copy))


def test_the_command_line_names_what_a_program_begins_with(tmp_path):
    """It is below the program's own settings, as all of the command line."""
    program = tmp_path / "program.py"
    program.write_text(
        "from penstock.engine.hosting.program.spark_host import SparkHost\n"
        "from pathlib import Path\n"
        f"Path({str(tmp_path / 'seen')!r}).write_text(repr(dict(SparkHost().command_line())))\n"
    )
    arguments = ["run", "-s", "/there", "-n", "--claim", "-D", "a=b", str(program)]
    assert main(arguments) == 0
    assert (tmp_path / "seen").read_text() == repr({
        "a": "b",
        "execution.state-recovery.path": "/there",
        "execution.state-recovery.ignore-unclaimed-state": "true",
        "execution.state-recovery.claim-mode": "CLAIM",
    })
