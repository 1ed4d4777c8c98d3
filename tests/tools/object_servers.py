"""Object stores of others: s3rver (S3), Azurite (Azure's blobs) and gcp-storage-emulator (Google's), in temporary directories, on loopback ports, ended with the tests."""

import base64
import contextlib
import hmac
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from urllib.parse import urlencode

from tests.tools.small_servers import free_port, program
from tests.tools.waiting import wait_until

START_S = 60.0
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = (  # Everybody knows it: Azurite has no other.
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@contextlib.contextmanager
def _running(port: int, command: list[str], folder: str) -> Generator[None]:
    with open(f"{folder}.log", "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: _answers(port), f"{command[0]} does not answer", START_S)
        yield
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def s3rver(bucket: str) -> Generator[str]:
    """`host:port` of a server with an empty bucket. Key and secret are S3RVER. It neither lists nor drops uploads."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="penstock-s3rver-") as folder:
        found = program("s3rver", target="object-stores")
        command = [
            found, "--directory", f"{folder}/data", "--address", "127.0.0.1",
            "--port", str(port), "--silent", "--no-vhost-buckets", "--configure-bucket", bucket,
        ]  # fmt: skip
        with _running(port, command, f"{folder}/server"):
            yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def azurite() -> Generator[Callable[[str], str]]:
    """What makes addresses of paths, `container/path`, for Arrow: with a signature that may do everything."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="penstock-azurite-") as folder:
        found = program("azurite-blob", target="object-stores")
        command = [
            found, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--silent",
            "--location", f"{folder}/data", "--skipApiVersionCheck", "--disableTelemetry",
            # It closes a connection that Arrow is about to use, else, after five seconds without a request.
            "--blobKeepAliveTimeout", "3600",
        ]  # fmt: skip
        with _running(port, command, f"{folder}/server"):
            query = f"enable_tls=false&{_signature()}"
            yield lambda path: f"abfs://{ACCOUNT}@127.0.0.1:{port}/{path}?{query}"


@contextlib.contextmanager
def google(bucket: str) -> Generator[Callable[[str], str]]:
    """What makes addresses of paths, `bucket/path`, for Arrow. The server has an empty bucket, in memory, and asks for no credentials."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="penstock-gcs-") as folder:
        own = str(Path(sys.executable).parent)
        command = [
            program("gcp-storage-emulator", target="object-stores", places=(own,)), "start",
            "--host=127.0.0.1", f"--port={port}", "--in-memory", f"--default-bucket={bucket}",
        ]  # fmt: skip
        with _running(port, command, f"{folder}/server"):
            query = f"scheme=http&endpoint_override=127.0.0.1%3A{port}&retry_limit_seconds=10"
            yield lambda path: f"gs://anonymous@{path}?{query}"


def _signature() -> str:
    """A shared access signature of the account, as Azure's documentation of it says ("Create an account SAS")."""
    version, rights, until, both = "2021-12-02", "rwdlacup", "2099-01-01T00:00:00Z", "https,http"
    signed = [ACCOUNT, rights, "b", "sco", "", until, "", both, version, "", ""]
    digest = hmac.digest(base64.b64decode(ACCOUNT_KEY), "\n".join(signed).encode(), "sha256")
    given = {"sv": version, "ss": "b", "srt": "sco", "sp": rights, "se": until, "spr": both}
    return urlencode({**given, "sig": base64.b64encode(digest).decode()})
