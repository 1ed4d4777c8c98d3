"""Classes of the main script in every kind of state: the script finds its own again, or the restore is refused."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.hosting import session as served

ROOT = Path(__file__).parents[3]
PROGRAM = (ROOT / "tests/tools/programs/classes_of_main.py").read_text()
KINDS = {"enumerator", "split", "writer", "committable", "value", "list", "map"}
CLI = "import sys; from penstock.ops.cli.cli import main; sys.exit(main())"
HARNESS = """
import dataclasses, sys
from enum import Enum
from pathlib import Path
from penstock.datastream import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.testing import StreamHarness

class Color(Enum):
    RED = "red"

@dataclasses.dataclass(frozen=True)
class Remark:
    color: Color

class Remembers(KeyedProcessFunction):
    def open(self, context):
        self.value = context.get_state(ValueStateDescriptor("value"))

    def process_element(self, value, ctx):
        found = self.value.value()
        self.value.update(Remark(Color.RED))
        if found is not None:
            yield isinstance(found, Remark), found == Remark(Color.RED), found.color is Color.RED

def harness(snapshot=b""):
    build = lambda numbers: numbers.key_by(lambda n: Color.RED).process(Remembers()).uid("it")
    return StreamHarness(build, restored=snapshot)

file = Path(sys.argv[1])
if not file.exists():
    with harness() as first:
        first.process_element(1)
        file.write_bytes(first.snapshot())
else:
    with harness(file.read_bytes()) as again:
        again.process_element(1)
        print(again.values())
"""


def run(command, *arguments):
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, *map(str, arguments)],
        capture_output=True,
        check=False,
        text=True,
        env=settings,
        timeout=120,
    )


def script(folder, text, name="program.py"):
    (folder / name).write_text(text)
    return folder / name


def without(name):
    """The program after a class has got another name."""
    return re.sub(rf"\b{name}\b", f"New{name}", PROGRAM)


def savepoint_of(ran):
    assert ran.returncode == 0, ran.stderr
    return next(line.split()[1] for line in ran.stdout.splitlines() if line.startswith("SAVEPOINT"))


def found_again(folder):
    """What the second run noted, without records."""
    lines = (folder / "again.txt").read_text().splitlines()
    return {line for line in lines if not line.startswith("record")}


@pytest.fixture(params=["heap", "rocks"])
def folder(request, tmp_path):
    made = tmp_path / request.param
    (made / "sp").mkdir(parents=True, mode=0o700)
    return made


def test_the_same_script_finds_its_own_classes_in_its_savepoint(folder):
    program = script(folder, PROGRAM)
    first = savepoint_of(run([sys.executable], program, "mini", folder))
    savepoint_of(run([sys.executable], program, "mini", folder, first))
    assert found_again(folder) == {f"{kind} True" for kind in KINDS}


def test_a_session_has_a_main_script_of_its_own_and_finds_the_classes_of_the_jobs(
    tmp_path, monkeypatch
):
    """The session still has the classes of the first run when the second comes."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "sp").mkdir(mode=0o700)
    program = script(tmp_path, PROGRAM)
    gone = script(tmp_path, without("Ledger"), "renamed.py")
    with served.session() as session:
        place = session.client.address.rpartition("://")[2]
        given = [sys.executable, "-c", CLI, "run", "-m", place]
        first = savepoint_of(run(given, program, "given", tmp_path))
        savepoint_of(run(given, program, "given", tmp_path, first))
        assert found_again(tmp_path) == {f"{kind} True" for kind in KINDS}
        refused = run(given, gone, "given", tmp_path, first)
    assert refused.returncode != 0
    assert "class 'Ledger' of the main script" in refused.stderr


@pytest.mark.parametrize(
    ("gone", "whose"),
    [
        ("Ledger", "the enumerator of 'Source: parts'"),
        ("Part", "operator 'parts' in checkpoint"),
        ("Desk", "operator 'files' in checkpoint"),
        ("Receipt", "operator 'files' in checkpoint"),
        ("Remark", "operator 'remembers' in checkpoint"),
        ("Rights", "operator 'files' in checkpoint"),
    ],
)
def test_a_class_that_has_gone_is_named_and_the_job_does_not_begin_again(tmp_path, gone, whose):
    refused_without(gone, whose, tmp_path)


def test_so_it_is_where_an_operator_reads_its_state_from_rocksdb(tmp_path):
    (tmp_path / "rocks").mkdir()
    refused_without("Remark", "operator 'remembers' in checkpoint", tmp_path / "rocks")


def refused_without(gone, whose, folder):
    (folder / "sp").mkdir(mode=0o700)
    first = savepoint_of(run([sys.executable], script(folder, PROGRAM), "mini", folder))
    changed = script(folder, without(gone), "changed.py")
    ended = run([sys.executable], changed, "mini", folder, first)
    assert ended.returncode != 0
    assert f"class '{gone}' of the main script" in ended.stderr
    assert whose in ended.stderr
    assert "JobExecutionError" in ended.stderr
    assert "no record came through" not in ended.stderr


def test_a_harness_restores_the_classes_of_its_script(tmp_path):
    program = script(tmp_path, HARNESS)
    assert run([sys.executable], program, tmp_path / "snapshot").returncode == 0
    again = run([sys.executable], program, tmp_path / "snapshot")
    assert (again.stdout, again.stderr) == ("[(True, True, True)]\n", "")
