"""`penstock`: what it prints, and its exit code, in this process; `COMMAND` begins one in another."""

import json
import sys

from penstock.ops.cli.cli import main

COMMAND = (
    sys.executable,
    "-c",
    "import sys; from penstock.ops.cli.cli import main; sys.exit(main())",
)


def run(capsys, *arguments):
    """(exit code, what is printed)."""
    capsys.readouterr()  # What the job itself has said.
    code = main(arguments)
    told = capsys.readouterr()
    return code, told.out + told.err


def as_json(capsys, *arguments):
    capsys.readouterr()  # What the job itself has said.
    code = main([*arguments, "--json"])
    told = capsys.readouterr()
    assert code == 0, told
    return json.loads(told.out)
