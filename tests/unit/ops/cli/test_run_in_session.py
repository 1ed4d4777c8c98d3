"""`penstock run -m`: what the options of the run become, and which make no sense together."""

import pytest

from penstock.engine.model.errors import ConfigurationError
from penstock.ops.cli.arguments import parsed
from penstock.ops.cli.cli import main
from penstock.ops.cli.run_in_session import in_session

PLACE = {
    "execution.target": "remote",
    "execution.attached": "true",
    "rest.address": "host",
    "rest.port": "8081",
}


def settings(*arguments):
    return in_session(parsed(["run", *arguments, "job.py"]), {"parallelism.default": "3"})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-m", "host:8081"], {}),
        (["-m", "http://host:8081/"], {}),
        (["-m", "https://host:8081"], {"security.ssl.rest.enabled": "true"}),
        (["-m", "[::1]:8081"], {"rest.address": "::1"}),
        (["-m", "host:8081", "-d"], {"execution.attached": "false"}),
        (["-m", "host:8081", "-sae"], {"execution.shutdown-on-attached-exit": "true"}),
        (["-m", "host:8081", "--token", "t"], {"penstock.rest.client.token": "t"}),
        (["-m", "host:8081", "--cacert", "f"], {"penstock.rest.client.certificates": "f"}),
    ],
)
def test_what_is_given_becomes_settings(arguments, expected):
    assert settings(*arguments) == {"parallelism.default": "3", **PLACE, **expected}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--master", "local[2]"], "--master is about the Spark of a program's own driver"),
        (["--conf", "spark.a=b"], "--conf is about the Spark of a program's own driver"),
        (["-d", "--log-file", "x.log"], "--log-file is for a driver in the background"),
        (["--json"], "--json needs -d"),
        (["-d", "-sae"], "with -d no client waits"),
    ],
)
def test_what_is_about_another_driver_is_refused(arguments, told):
    with pytest.raises(ConfigurationError, match=told):
        settings("-m", "host:8081", *arguments)


@pytest.mark.parametrize("address", ["host", "host:", ":8081", "host:port", "ftp://host:8081"])
def test_an_address_without_host_or_port_is_refused(capsys, address):
    with pytest.raises(SystemExit, match="2"):
        settings("-m", address)
    assert "-m/--jobmanager: takes HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--token", "t"], ["--cacert", "f"], ["-sae"]])
@pytest.mark.parametrize("more", [[], ["-d"]])
def test_options_of_a_session_are_refused_without_one(tmp_path, capsys, arguments, more):
    program = tmp_path / "job.py"
    program.write_text("raise AssertionError", "utf-8")
    assert main(["run", *more, *arguments, str(program)]) == 1
    assert f"penstock: {arguments[0]} is about a session" in capsys.readouterr().err
