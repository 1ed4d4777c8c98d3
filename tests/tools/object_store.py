"""An object store, over the real protocol: a bucket of a server of its own (moto). Fixtures."""

import contextlib
import logging
from urllib.parse import quote

import pytest
from pyarrow import fs

BUCKET = "bucket"


class Store:
    """A bucket, as a client sees it that knows nothing of Penstock."""

    def __init__(self, server) -> None:
        self._server = server
        host, port = server.get_host_and_port()
        self._query = f"scheme=http&endpoint_override={quote(f'{host}:{port}')}&region=us-east-1"
        self.system, _ = fs.FileSystem.from_uri(
            f"s3://{BUCKET}?{self._query}&allow_bucket_creation=true"
        )
        self.system.create_dir(BUCKET)

    def uri(self, folder: str) -> str:
        return f"s3://{BUCKET}/{folder}?{self._query}"

    def files(self, folder: str = "") -> list[str]:
        found = self.system.get_file_info(
            fs.FileSelector(f"{BUCKET}/{folder}".rstrip("/"), recursive=True, allow_not_found=True)
        )
        return [one.path for one in found if one.type is fs.FileType.File]

    @contextlib.contextmanager
    def client(self):
        import boto3

        host, port = self._server.get_host_and_port()
        made = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
        with contextlib.closing(made):
            yield made

    def objects(self) -> list[str]:
        """All keys, also those of the empty objects that stand for folders."""
        with self.client() as client:
            return [one["Key"] for one in client.list_objects_v2(Bucket=BUCKET).get("Contents", ())]

    def read(self, key: str) -> bytes:
        with self.system.open_input_file(f"{BUCKET}/{key}") as file:
            return file.read()

    def write(self, key: str, data: bytes) -> None:
        # Arrow would pack what it writes if the key ends with ".gz".
        with self.system.open_output_stream(f"{BUCKET}/{key}", compression=None) as stream:
            stream.write(data)

    def change(self, path: str, change) -> None:
        with self.system.open_input_file(path) as file:
            data = file.read()
        with self.system.open_output_stream(path) as stream:
            stream.write(change(data))


@pytest.fixture(scope="module")
def object_store_server():
    from moto.server import ThreadedMotoServer  # It is slow to import, and few tests need it.

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    made = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    made.start()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        yield made
    made.stop()


@pytest.fixture
def object_store(object_store_server):
    made = Store(object_store_server)
    yield made
    made.system.delete_dir_contents(BUCKET)
