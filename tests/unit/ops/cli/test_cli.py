"""What the options of `penstock run` mean for jobs: settings below the program's own."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from penstock.ops.cli.arguments import parsed, parser
from penstock.ops.cli.programs import command_line


def settings_of(*arguments):
    return command_line(parser().parse_args(["run", *arguments]))


def test_taskmanagers_and_slots_say_how_many_subtasks_there_are():
    settings, spark = settings_of("job.py", "--taskmanagers", "2", "--slots", "3")
    assert settings == {"taskmanager.numberOfTaskSlots": "3", "parallelism.default": "6"}
    assert spark == {}


def test_one_of_them_alone():
    assert settings_of("job.py", "--taskmanagers", "2")[0] == {"parallelism.default": "2"}
    assert settings_of("job.py", "--slots", "2")[0] == {"taskmanager.numberOfTaskSlots": "2"}


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit, match="0"):
        parsed(["--version"])
    assert capsys.readouterr().out == f"penstock {version('penstock')}\n"


def test_a_setting_counts_more():
    settings, _ = settings_of("job.py", "--taskmanagers", "2", "-D", "parallelism.default=5")
    assert settings == {"parallelism.default": "5"}


def test_the_master_and_sparks_own_settings():
    given = ("--master", "local[4]", "--conf", "spark.ui.enabled=false", "job.py", "--", "--own")
    settings, spark = settings_of(*given)
    assert settings == {"penstock.spark.master": "local[4]"}
    assert spark == {"spark.ui.enabled": "false"}


@pytest.mark.parametrize("count", ["0", "-1", "two"])
def test_counts_are_positive(count, capsys):
    with pytest.raises(SystemExit):
        settings_of("job.py", "--slots", count)
    assert "--slots" in capsys.readouterr().err


@pytest.mark.parametrize("options", [(), ("-D", "a=b"), ("--slots", "2")])
@pytest.mark.parametrize(
    "command", [("run", "job.py"), ("plan", "job.py"), ("savepoint", "check", "job.py", "folder")]
)
def test_what_follows_two_dashes_goes_to_the_program_whatever_stands_before(command, options):
    given = [*command, *(() if command[0] == "savepoint" and "--slots" in options else options)]
    found = parsed([*given, "--", "--input", "/data", "--", "-D"])
    assert found.arguments == ["--input", "/data", "--", "-D"]
    assert (found.script, found.define) == ("job.py", ["a=b"] if "-D" in given else [])


def test_a_command_without_a_program_takes_no_arguments_for_one(capsys):
    with pytest.raises(SystemExit):
        parsed(["savepoint", "inspect", "folder", "--", "x"])
    assert "runs no program, but got arguments for one: x" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["list"], ["top", "--help"], ["savepoint", "take", "no-job"]]
)
def test_a_command_that_only_asks_drivers_imports_no_engine(arguments, tmp_path):
    """The engine takes most of a second to import."""
    program = (
        "import sys\n"
        "from penstock.ops.cli.cli import main\n"
        "try:\n"
        f"    main({arguments})\n"
        "except SystemExit:\n"
        "    pass\n"
        "heavy = ('pyspark', 'pyarrow', 'numpy', 'penstock.engine.runtime')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "program",
    ["def broken():\n    return {}['a']\n\nbroken()\n", "import no_such_module\n", "x = (\n"],
    ids=["raises", "imports", "syntax"],
)
@pytest.mark.parametrize("command", ["run", "plan"])
def test_an_error_of_the_program_is_shown_as_by_python_itself(program, command, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(program)
    python, penstock = [sys.executable], [str(Path(sys.executable).with_name("penstock")), command]
    expected, found = (
        subprocess.run([*start, str(script)], capture_output=True, text=True, check=False)
        for start in (python, penstock)
    )
    assert (found.returncode, found.stderr) == (1, expected.stderr)
