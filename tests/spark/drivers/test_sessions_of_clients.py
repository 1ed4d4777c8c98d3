"""`penstock session` as a process on local[4]: programs of other processes submit to it, and it survives a kill with its jobs."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.tools.output_files import committed_lines
from tests.tools.terminal import ROOT
from tests.tools.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CODE = "import sys; from penstock.ops.cli.cli import main; sys.exit(main())"
PATIENCE_S = 120
PROGRAM = """
import sys
from own_module import kept
from penstock.common import Encoder, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DataGeneratorSource
from penstock.connectors.file_system import FileSink

folder, count = sys.argv[1], int(sys.argv[2])
env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
env.enable_checkpointing(200)
source = DataGeneratorSource(lambda n: n, count, 100.0)
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
sink = FileSink.for_row_format(folder, Encoder.simple_string_encoder()).build()
numbers.map(kept).map(str).sink_to(sink)
env.execute("counts")
"""


class Commands:
    """`penstock` in processes of their own. What they leave behind is ended by its pid."""

    def __init__(self, folder):
        self.folder = folder
        self.environment = {
            **os.environ, "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(folder),
        }  # fmt: skip
        self.pids = []

    def begin(self, *arguments, **more):
        return subprocess.Popen(
            [sys.executable, "-c", CODE, *arguments], text=True, cwd=self.folder,
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more,
        )  # fmt: skip

    def run(self, *arguments):
        process = self.begin(*arguments)
        told, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, told
        return told

    def session(self):
        told = json.loads(
            self.run(
                "session", "-d", "--json", "--master", "local[4]", "-Drest.bind-port=0",
                "-Dhigh-availability.type=FILE", "-Dhigh-availability.cluster-id=tests",
                f"-Dhigh-availability.storageDir={self.folder / 'ha'}",
                "-Dpenstock.high-availability.lease-duration=3 s",
                "-Dpenstock.high-availability.renew-interval=300 ms",
            )
        )  # fmt: skip
        self.pids.append(told["pid"])
        return told["address"].removeprefix("http://"), told["pid"]

    def jobs(self, address):
        return json.loads(self.run("list", "-a", "--json", "-m", address))


@pytest.fixture
def commands(tmp_path):
    made = Commands(tmp_path)
    yield made
    for pid in made.pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def test_jobs_of_several_clients_outlive_a_client_and_a_killed_session(commands, tmp_path):
    for name in ("a", "b"):  # A different module of the same name each.
        (tmp_path / name).mkdir()
        (tmp_path / name / "job.py").write_text(PROGRAM, "utf-8")
    (tmp_path / "a" / "own_module.py").write_text("def kept(n): return n", "utf-8")
    (tmp_path / "b" / "own_module.py").write_text("def kept(n): return -n", "utf-8")
    address, pid = commands.session()
    clients = [
        commands.begin("run", "-m", address, f"{name}/job.py", "--", str(tmp_path / out), "1000")
        for name, out in (("a", "out-a"), ("b", "out-b"))
    ]

    def both_run():
        with_results = [out for out in ("out-a", "out-b") if list(tmp_path.glob(f"{out}/**/*"))]
        return len(with_results) == 2

    wait_until(both_run, "the jobs do not run", PATIENCE_S)
    for client in clients:
        client.kill()
        client.communicate()
    assert {job["state"] for job in commands.jobs(address)} == {"RUNNING"}
    assert f"session at http://{address}" in commands.run("list")
    os.kill(pid, signal.SIGKILL)
    address, _ = commands.session()

    def states():
        return sorted(job["state"] for job in commands.jobs(address))

    wait_until(lambda: states() == ["FINISHED", "FINISHED"], "the jobs do not end", PATIENCE_S)
    assert sorted(map(int, committed_lines(tmp_path / "out-a"))) == list(range(1000))
    assert sorted(map(int, committed_lines(tmp_path / "out-b"))) == list(range(-999, 1))
    assert "stopped" in commands.run("session", "stop", "-m", address)
