"""What commit 5e53c48 wrote, before modules moved, is restored by the present code: see `README.md` beside this."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from penstock.common import Types
from penstock.datastream import DataStream
from penstock.model.errors import JobExecutionError
from penstock.model.former_modules import present_module, present_name
from penstock.testing import MiniCluster
from tests.former import program

HERE = Path(__file__).parent
EXPECTED = (HERE / "expected.txt").read_text().splitlines()
GONE = {
    line.split(" ", 2)[0] + " " + line.split(" ", 2)[1]
    for line in (HERE / "gone.txt").read_text().splitlines()
    if line and not line.startswith("#")
}


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_job_goes_on_from_a_former_savepoint_and_writes_what_it_would_have_written(
    folder, backend
):
    at = folder(f"savepoint-{backend}")
    before = program.written(at / "out")
    assert 0 < len(before) < len(EXPECTED), "the savepoint was taken in the middle"
    (savepoint,) = (at / "savepoint").iterdir()
    settings = {"state.backend.type": backend, "execution.state-recovery.path": str(savepoint)}
    env = program.environment(settings, MiniCluster(parallelism=2).executor())
    program.build(env)
    env.execute("former")
    assert program.written(at / "out") == EXPECTED


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_keys_of_a_former_savepoint_are_checked_against_the_declared_type(
    folder, backend, monkeypatch
):
    """It carries no types: its keys are whole numbers, and the program now declares text."""
    at = folder(f"savepoint-{backend}")
    (savepoint,) = (at / "savepoint").iterdir()
    settings = {
        "state.backend.type": backend,
        "execution.state-recovery.path": str(savepoint),
        "restart-strategy.type": "none",
    }
    key_by = DataStream.key_by

    def by_text(stream, key_of, key_type):
        return key_by(stream, lambda value: str(key_of(value)), Types.STRING())

    monkeypatch.setattr(DataStream, "key_by", by_text)
    env = program.environment(settings, MiniCluster(parallelism=2).executor())
    program.build(env)
    with pytest.raises(
        JobExecutionError, match="without a declared type and are of class int.*STRING"
    ):
        env.execute("former")


def former_definitions() -> list[str]:
    return (HERE / "classes.txt").read_text().splitlines()


def test_every_class_and_function_of_that_commit_is_found_where_it_is_now():
    """Whatever of ours may stand in a pickle: what is gone for good is listed in `gone.txt`, with the reason."""
    missing = []
    for line in former_definitions():
        module, name = line.split()
        try:
            found = importlib.import_module(present_module(module, name))
        except ModuleNotFoundError:
            found = None
        if not hasattr(found, present_name(module, name)):
            missing.append(line)
    assert set(missing) == GONE
