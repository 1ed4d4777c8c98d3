import sys

from penstock.ops.registry.environment import environment


def test_secrets_on_the_command_line_are_not_told(monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", ["python", "job.py", "jdbc://me:secret@host/db"])
    told = environment()
    assert told["jvm"]["options"] == ["job.py", "jdbc://******@host/db"]
    assert told["jvm"]["version"].startswith("Python 3.")
    assert told["classpath"] == sys.path
