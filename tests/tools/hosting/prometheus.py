"""Servers of Prometheus of the tests' own: in temporary directories, on loopback ports, ended with them."""

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path

from tests.tools.waiting import wait_until

START_S = 30.0
ONLY_STYLE = 3
"""How promtool ends where it understands everything, and would have liked other names."""


class PrometheusMissing(AssertionError):
    """There is no Prometheus to test with. A failure, for a test that quietly does not run proves nothing."""


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise PrometheusMissing(
            f"{name} is not there. Run `make prometheus`, or install it: "
            "`apt-get install prometheus prometheus-pushgateway` on Debian."
        )
    return found


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def got(url: str, user: tuple[str, str] | None = None) -> str:
    """`user`: name and password."""
    asked = urllib.request.Request(url)
    if user is not None:
        shown = base64.b64encode(":".join(user).encode()).decode()
        asked.add_header("Authorization", f"Basic {shown}")
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return answer.read().decode()


@contextlib.contextmanager
def _running(folder: Path, ready: str, command: list[str], user=None):
    log = folder / "log"
    with log.open("wb") as to:
        process = subprocess.Popen(command, stdout=to, stderr=to, cwd=folder)
    try:

        def is_ready():
            with contextlib.suppress(OSError):
                got(ready, user)
                return True
            return process.poll() is not None

        wait_until(is_ready, f"{command[0]} does not answer", START_S)
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.kill()
        process.wait()


class Prometheus:
    def __init__(self, address: str) -> None:
        self.address = address

    def query(self, text: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series."""
        asked = urllib.parse.urlencode({"query": text})
        answer = json.loads(got(f"{self.address}/api/v1/query?{asked}"))
        assert answer["status"] == "success", answer
        return [(one["metric"], float(one["value"][1])) for one in answer["data"]["result"]]

    def targets(self):
        return json.loads(got(f"{self.address}/api/v1/targets"))["data"]["activeTargets"]


@contextlib.contextmanager
def prometheus_server(target: str):
    """A Prometheus that scrapes the target, `host:port`, all the time."""
    with tempfile.TemporaryDirectory(prefix="penstock-prometheus-") as name:
        folder, port = Path(name), _free_port()
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
            "scrape_configs: "
            f"[{{job_name: penstock, static_configs: [{{targets: ['{target}']}}]}}]\n"
        )
        address = f"http://127.0.0.1:{port}"
        command = [
            _program("prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=data",
            f"--web.listen-address=127.0.0.1:{port}",
        ]  # fmt: skip
        with _running(folder, f"{address}/-/ready", command):
            yield Prometheus(address)


@contextlib.contextmanager
def push_gateway(*more: str, user: tuple[str, str] | None = None):
    """The address of a PushGateway. `more`: of its command line. `user`: name and password, if it asks for them."""
    with tempfile.TemporaryDirectory(prefix="penstock-pushgateway-") as name:
        address = f"http://127.0.0.1:{_free_port()}"
        listen = f"--web.listen-address={address.removeprefix('http://')}"
        command = [_program("prometheus-pushgateway"), listen, *more]
        with _running(Path(name), f"{address}/-/ready", command, user):
            yield address


def groups_of(gateway: str, user: tuple[str, str] | None = None) -> list[dict]:
    """What a PushGateway holds: by group, its labels and metrics."""
    return json.loads(got(f"{gateway}/api/v1/metrics", user))["data"]


def promtool_says(page: bytes) -> list[str]:
    """What `promtool check metrics` finds. A page that it cannot read is an error."""
    command = [_program("promtool"), "check", "metrics"]
    done = subprocess.run(command, input=page, capture_output=True, check=False)
    assert done.returncode in {0, ONLY_STYLE}, done.stderr.decode()
    return (done.stdout + done.stderr).decode().splitlines()
