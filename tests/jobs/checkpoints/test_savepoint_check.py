"""`penstock savepoint check`, through its parser, on savepoints that jobs have written: what it says, what it returns, what it runs."""

from __future__ import annotations

import pytest

from penstock.common import Types
from penstock.datastream.state import ValueStateDescriptor
from penstock.ops.cli.cli import main
from tests.tools.programs.changing_program import (
    Count,
    key_number,
    savepoint_of,
)

PROGRAM = """
import sys
from pathlib import Path
from penstock.common import Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from tests.tools.programs.changing_program import Count, counts, key_number

here = Path(__file__).parent
(here / "arguments").write_text(repr(sys.argv[1:]))
env = StreamExecutionEnvironment.get_execution_environment()
KEY_TYPE, CONVERT, COUNTED = Types.LONG(), int, ValueStateDescriptor("count", Types.LONG())
{changes}
counts(
    env,
    "a stage that does not exist",
    here / "out",
    lambda stream: stream.key_by(lambda value: CONVERT(key_number(value)), KEY_TYPE),
    Count(COUNTED),
)
env.execute("check me")
(here / "ran on").write_text("the program went on behind execute()")
"""


@pytest.fixture(scope="module", params=["hashmap", "rocksdb"])
def savepoint(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param)
    return savepoint_of(
        path, request.param, by_long, Count(ValueStateDescriptor("count", Types.INT()))
    )


def by_long(stream):
    return stream.key_by(key_number, Types.LONG())


@pytest.fixture
def check(tmp_path, savepoint, capsys):
    """Checks the savepoint with a program that has these lines; returns the exit code, what was printed, and the complaints."""

    def run(changes="", *options, where=None):
        script = tmp_path / "my_job.py"
        script.write_text(PROGRAM.format(changes=changes))
        arguments = ["savepoint", "check", str(script), where or savepoint, *options]
        code = main(arguments)
        out, err = capsys.readouterr()
        assert not (tmp_path / "ran on").exists()
        assert not list((tmp_path / "out").rglob("*")), "no sink may write"
        return code, out, err

    return run


def line_of(out, state):
    """The line of a state of the operator Count, and the one below it."""
    lines = out.split("Count  (uid count)\n")[1].split("\n\n")[0].splitlines()
    place = next(i for i, line in enumerate(lines) if line.split()[0] == state)
    below = (
        lines[place + 1].strip()
        if lines[place + 1 :] and lines[place + 1].startswith("    ")
        else ""
    )
    return " ".join(lines[place].split()), below


def test_what_maps_and_what_is_migrated_is_told(check):
    code, out, _ = check()
    assert code == 0
    assert line_of(out, "keys") == ("keys maps: LONG", "")
    assert line_of(out, "count") == (
        "count is migrated: Value of INT -> Value of LONG", "INT becomes LONG.",
    )  # fmt: skip
    assert out.rstrip().endswith("The savepoint would be restored.")


@pytest.mark.parametrize(
    ("changes", "present"),
    [
        ("KEY_TYPE, CONVERT = Types.STRING(), str", "STRING"),
        ("KEY_TYPE, CONVERT = Types.DOUBLE(), float", "DOUBLE"),
        ("KEY_TYPE, CONVERT = Types.TUPLE([Types.LONG()]), lambda n: (n,)", "TUPLE(LONG)"),
        ("KEY_TYPE = None", "undeclared (PICKLED_BYTE_ARRAY)"),
    ],
)
def test_refused_keys_have_both_types_and_the_next_step(check, changes, present):
    code, out, _ = check(changes)
    assert code == 1
    line, text = line_of(out, "keys")
    assert line == f"keys is refused: LONG -> {present}"
    assert "Declare the key type of key_by as it was" in text
    assert "The savepoint would be REFUSED." in out


def test_where_two_keys_may_become_one_it_is_told(check):
    to_double = "KEY_TYPE, CONVERT = Types.DOUBLE(), float"
    _, out, _ = check(to_double, "-D", "penstock.state-recovery.allow-int-to-double=true")
    assert "If two keys become one by this, the restore is refused" in line_of(out, "keys")[1]
    _, out, _ = check()
    assert "two keys" not in out


def test_an_option_of_the_command_line_counts(check):
    code, out, _ = check(
        "KEY_TYPE, CONVERT = Types.DOUBLE(), float",
        "-D", "penstock.state-recovery.allow-int-to-double=true",
    )  # fmt: skip
    assert code == 0
    line, text = line_of(out, "keys")
    assert line == "keys is migrated: LONG -> DOUBLE"
    assert "keys move to other key groups" in text


def test_a_refused_value_has_both_types_and_the_next_step(check):
    code, out, _ = check('COUNTED = ValueStateDescriptor("count", Types.STRING())')
    assert code == 1
    line, text = line_of(out, "count")
    assert line == "count is refused: Value of INT -> Value of STRING"
    assert "INT cannot become STRING" in text
    assert "give the new state another name" in text


def test_what_starts_empty_and_what_is_kept(check):
    code, out, _ = check('COUNTED = ValueStateDescriptor("total", Types.LONG())')
    assert code == 0
    assert line_of(out, "total")[0] == "total starts empty: Value of LONG"
    assert line_of(out, "count")[0] == "count is kept unused: Value of INT"


RENAMED = """
import tests.tools.programs.changing_program as program
KEYED = program.Count
def counts(env, stage, out, keyed, function):
    source = program.HeldSource(stage, 1, 1, 1)
    from penstock.common import WatermarkStrategy
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "held").uid("held")
    program.file_sink(out)
    counted = keyed(stream).process(function).name("Count").uid("other")
    counted.sink_to(program.file_sink(out)).uid("out")
"""


def test_state_that_nobody_claims_is_refused_and_with_the_flag_dropped(check):
    code, out, _ = check(RENAMED)
    assert code == 1
    assert "Count  (uid count)\n  all state                is refused: keys LONG" in out
    assert "--allow-non-restored-state" in out
    code, out, _ = check(RENAMED, "--allow-non-restored-state")
    assert code == 0
    assert "Count  (uid count)\n  all state                is dropped: keys LONG" in out
    assert "Count  (uid other)\n  all state                starts empty: keys LONG" in out


ANOTHER_KIND = """
import tests.tools.programs.changing_program as program
def counts(env, stage, out, keyed, function):
    from penstock.common import WatermarkStrategy
    source = program.HeldSource(stage, 1, 1, 1)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "held").uid("held")
    {operator}.name("Count").uid("count").sink_to(program.file_sink(out)).uid("out")
"""


@pytest.mark.parametrize(
    "operator",
    ["stream.map(str)", "keyed(stream).reduce(max)", "keyed(stream).count_window(5).reduce(max)"],
)
def test_state_of_an_operator_of_another_kind_is_refused(check, operator):
    code, out, _ = check(ANOTHER_KIND.format(operator=operator))
    assert code == 1
    assert "is refused" in out.split("Count  (uid count)")[1]


def test_the_rest_of_the_line_goes_to_the_program(check, tmp_path):
    assert check("", "left", "right")[0] == 0
    assert (tmp_path / "arguments").read_text() == "['left', 'right']"
    assert check("", "-n", "--", "--input", "/data")[0] == 0
    assert (tmp_path / "arguments").read_text() == "['--input', '/data']"


FAILS_TO_OPEN = """
class Broken(Count):
    def open(self, runtime_context):
        raise ConnectionError("no database here")
Count = lambda counted: Broken(counted)
"""


def test_a_function_that_cannot_be_opened_here_is_told_and_need_not_be_opened(check):
    code, out, err = check(FAILS_TO_OPEN)
    assert err == ""
    assert code == 0
    assert "opening it raised ConnectionError: no database here" in out
    assert out.rstrip().endswith("As far as this is known, the savepoint would be restored.")
    code, out, _ = check(FAILS_TO_OPEN, "--no-open")
    assert code == 0
    assert "ConnectionError" not in out
    assert line_of(out, "count") == (
        "count is not known: Value of INT",
        "the operator was not opened.",
    )


BATCH = """
from penstock.datastream import RuntimeExecutionMode
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
"""


@pytest.mark.parametrize(
    ("changes", "options", "complaint"),
    [
        ("raise ValueError('mistake')", (), "ValueError: mistake"),
        ("sys.exit(0)", (), "called sys.exit(0) before it ran a job"),
        ("counts = lambda *a: None; env.execute = lambda name: sys.exit(3)", (), "sys.exit(3)"),
        ("", ("-D", "nonsense"), "-D takes KEY=VALUE"),
        (BATCH, (), "BATCH mode"),
    ],
)
def test_what_cannot_be_told_is_bad_use(check, changes, options, complaint):
    code, out, err = check(changes, *options)
    assert (code, out) == (2, "")
    assert complaint in err


def test_a_savepoint_or_a_program_that_is_not_there_is_bad_use(check, tmp_path, savepoint, capsys):
    assert check("", where=str(tmp_path / "nowhere"))[0] == 2
    assert main(["savepoint", "check", str(tmp_path / "no.py"), savepoint]) == 2
    assert "does not exist" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["savepoint", "check", savepoint])
    assert caught.value.code == 2
