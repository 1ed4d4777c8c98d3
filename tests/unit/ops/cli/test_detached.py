"""`penstock run -d`: what the process in the background is told, and what is refused before anything starts."""

import pytest

from penstock.ops.cli.arguments import parsed
from penstock.ops.cli.cli import main
from penstock.ops.cli.detached import attached

ALL = [
    "run", "-d", "--log-file", "here.log", "--json", "--master", "local[3]", "--taskmanagers", "2",
    "--slots", "3", "-s", "/savepoint", "-n", "--claim", "--conf", "a=b", "--conf", "c=-d",
    "-D", "x=1", "-D", "y=--z", "job.py", "--", "-d", "--input", "some file",
]  # fmt: skip


@pytest.mark.parametrize("arguments", [ALL, ["run", "-d", "job.py"], ["run", "-d", "j.py", "in"]])
def test_the_program_gets_the_same_options_without_those_of_the_background(arguments):
    options = parsed(arguments)
    again = parsed(attached(options))
    of_background = {"detached": False, "log_file": None, "json": False}
    assert vars(again) == {**vars(options), **of_background}


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "job.py"
    path.write_text("print('runs')", "utf-8")
    return str(path)


@pytest.mark.parametrize("detached", [["-d"], []])
def test_in_cluster_mode_it_says_how_to_submit(capsys, program, tmp_path, detached):
    asked = ("run", *detached, "--master", "yarn", "--conf", "spark.submit.deployMode=cluster")
    assert main([*asked, program, "--", "--input", "a b"]) == 1
    told = capsys.readouterr().err
    assert "spark-submit --master yarn --deploy-mode cluster" in told
    assert ("waitAppCompletion" in told) is bool(detached)
    assert f"{program} --input 'a b'" in told
    assert [one.name for one in tmp_path.iterdir()] == ["job.py"]


@pytest.mark.parametrize("option", ["--json", "--log-file=x.log"])
def test_options_of_the_background_need_it(capsys, program, option):
    assert main(["run", option, program]) == 1
    told = capsys.readouterr()
    assert "need -d" in told.err
    assert "runs" not in told.out


def test_a_program_that_is_not_there_is_refused_at_once(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "-d", "nothing.py"]) == 1
    assert "'nothing.py' does not exist" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_log_that_cannot_be_written_is_named(capsys, program):
    assert main(["run", "-d", "--log-file", "no/such/folder.log", program]) == 1
    assert "--log-file" in capsys.readouterr().err
