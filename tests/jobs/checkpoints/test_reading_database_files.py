"""Looking into an incremental checkpoint, whose keyed state lies in files of RocksDB: the same is shown as of a savepoint."""

import sys

import pytest

from penstock.datastream.savepoint import read_savepoint
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.ops.cli.cli import main
from tests.tools.programs.checkpoint_programs import (
    Stage,
    Watcher,
    restarting_environment,
)
from tests.tools.programs.remembering_program import REMEMBERED, SPLITS, by_key, remembering


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkpoint that was kept, of when every split was at its fifth number."""
    stage, watcher = Stage("reader of databases"), Watcher()
    settings = {
        "state__backend__type": "rocksdb",
        "execution__checkpointing__incremental": "true",
        "execution__checkpointing__interval": "20 ms",
        "execution__checkpointing__dir": str(tmp_path_factory.mktemp("checkpoints")),
        "execution__checkpointing__externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "io__tmp__dirs": str(tmp_path_factory.mktemp("io")),
    }
    env = restarting_environment(watcher, parallelism=SPLITS, **settings)
    client = remembering(env, stage, tmp_path_factory.mktemp("out"))
    # The second of these began after the splits were held, and behind all that they had sent.
    watcher.wait_for(client.get_checkpoints().result().completed + 2)
    client.cancel().result()
    kept = client.get_checkpoints().result().latest_completed
    stage.gate.set()
    return kept.location


@pytest.mark.parametrize(("name", "value"), REMEMBERED)
def test_keyed_state_is_read_from_the_files_of_databases(folder, name, value):
    found = read_savepoint(folder).keyed_state("remember", name)
    assert by_key(found) == dict.fromkeys(range(SPLITS), value)


def test_operators_are_shown_with_what_their_databases_hold(folder):
    remember = read_savepoint(folder).operators()[1]
    last = next(state for state in remember.keyed if state.name == "last")
    assert (last.rows, last.kind) == (SPLITS, "Value of Long without time to live")
    assert sum(last.groups.values()) == SPLITS
    assert last.size_bytes > SPLITS
    halves = next(state for state in remember.keyed if state.name == "halves")
    assert halves.rows == SPLITS


def test_a_state_that_is_not_there_is_told_with_those_that_are(folder):
    with pytest.raises(ConfigurationError, match="no keyed state 'first'.*it has: all, halves"):
        read_savepoint(folder).keyed_state("remember", "first")


def test_the_command_line_shows_it(folder, capsys):
    assert main(["savepoint", "inspect", folder]) == 0
    shown = capsys.readouterr().out
    assert "keyed state 'last': Value of Long without time to live, 3 rows" in shown


def test_without_the_package_it_says_so(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(
        ExternalError, match=r"'rocksdict' cannot be imported here.*penstock\[rocks"
    ):
        read_savepoint(folder).operators()


CHECKED = """
from pathlib import Path
from penstock.common import Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from tests.tools.programs.checkpoint_programs import HeldSource, file_sink
from tests.tools.programs.remembering_program import Remember
from tests.tools.programs.user_functions import first_of

env = StreamExecutionEnvironment.get_execution_environment()
source = HeldSource("no stage", splits=1, count=1, hold=1)
stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "held").uid("held")
keyed = stream.key_by(first_of, {key_type})
keyed.process(Remember()).uid("remember").sink_to(file_sink(Path(__file__).parent / "out"))
env.execute()
"""


@pytest.mark.parametrize(("key_type", "code"), [("None", 0), ("Types.LONG()", 0)])
def test_what_a_program_would_make_of_it_is_told(folder, tmp_path, capsys, key_type, code):
    script = tmp_path / "job.py"
    script.write_text(CHECKED.format(key_type=key_type))
    assert main(["savepoint", "check", str(script), folder, "-n"]) == code
    out = " ".join(capsys.readouterr().out.split())
    for text in (
        "last maps: Value of LONG",
        "halves maps: Map of MAP(LONG, LONG)",
        "kept maps: Value of LONG with time to live",
    ):
        assert text in out
