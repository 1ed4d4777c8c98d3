"""`penstock history` on the command line."""

import pytest

from penstock.engine.model.options.rest import HistoryServerOptions
from penstock.ops.cli import programs
from penstock.ops.cli.cli import main


class Server:
    """Notes how it is made, and is interrupted at once."""

    made = None
    address = "http://localhost:8082"
    jobs = 3

    def __init__(self, directories, settings) -> None:
        type(self).made = directories, settings

    def run(self):
        raise KeyboardInterrupt


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(programs, "HistoryServer", Server)
    return Server


def test_the_address_is_printed_and_an_interrupt_is_a_good_end(server, capsys):
    assert main(["history", "/a", "/b", "--port", "9"]) == 0
    assert capsys.readouterr().out == "penstock: history of 3 jobs at http://localhost:8082\n"
    directories, settings = server.made
    assert directories == ["/a", "/b"]
    assert settings.get(HistoryServerOptions.PORT) == 9


def test_folders_may_be_configured(server):
    assert main(["history", "-D", "historyserver.archive.fs.dir=/a, s3://b/c,"]) == 0
    directories, settings = server.made
    assert directories == ["/a", "s3://b/c"]
    assert settings.get(HistoryServerOptions.PORT) == 8082


def test_without_folders_the_command_says_what_to_do(capsys):
    assert main(["history"]) == 1
    assert "penstock history /mnt/archive" in capsys.readouterr().err
