"""An object store, over the real protocol: a bucket of a server of its own (moto). Fixtures."""

import contextlib
import logging
from urllib.parse import quote

import pytest
from pyarrow import fs

from tests.tools.object_servers import s3rver

BUCKET = "bucket"


class Store:
    """A bucket, as a client sees it that knows nothing of Penstock. `host`: with the port. `keys`: `key:secret`; None: those of the environment."""

    def __init__(self, host: str, keys: str | None = None) -> None:
        self.host = host
        self._keys = keys
        self._query = f"scheme=http&endpoint_override={quote(host)}&region=us-east-1"
        self.system, _ = fs.FileSystem.from_uri(f"{self.uri('')}&allow_bucket_creation=true")
        self.system.create_dir(BUCKET)

    def uri(self, folder: str) -> str:
        user = f"{self._keys}@" if self._keys else ""
        return f"s3://{user}{BUCKET}/{folder}?{self._query}"

    def files(self, folder: str = "") -> list[str]:
        found = self.system.get_file_info(
            fs.FileSelector(f"{BUCKET}/{folder}".rstrip("/"), recursive=True, allow_not_found=True)
        )
        return [one.path for one in found if one.type is fs.FileType.File]

    @contextlib.contextmanager
    def client(self):
        import boto3

        key, secret = self._keys.split(":") if self._keys else (None, None)
        made = boto3.client(
            "s3",
            endpoint_url=f"http://{self.host}",
            region_name="us-east-1",
            aws_access_key_id=key,
            aws_secret_access_key=secret,
        )
        with contextlib.closing(made):
            yield made

    def objects(self) -> list[str]:
        """All keys, also those of the empty objects that stand for folders."""
        with self.client() as client:
            return [one["Key"] for one in client.list_objects_v2(Bucket=BUCKET).get("Contents", ())]

    def uploads(self) -> list[str]:
        """Keys of the uploads that are not completed."""
        with self.client() as client:
            found = client.list_multipart_uploads(Bucket=BUCKET)
            return [one["Key"] for one in found.get("Uploads", ())]

    def drop_uploads(self) -> None:
        with self.client() as client:
            for one in client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ()):
                client.abort_multipart_upload(
                    Bucket=BUCKET, Key=one["Key"], UploadId=one["UploadId"]
                )

    def lines(self, folder: str) -> list[str]:
        """Of all visible objects below a folder."""
        keys = [one.removeprefix(f"{BUCKET}/") for one in self.files(folder)]
        shown = [key for key in keys if not key.rpartition("/")[2].startswith(".")]
        return [line for key in shown for line in self.read(key).decode().splitlines()]

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
    host, port = object_store_server.get_host_and_port()
    made = Store(f"{host}:{port}")
    yield made
    made.drop_uploads()
    made.system.delete_dir_contents(BUCKET)


@pytest.fixture(scope="module")
def other_server():
    """Another implementation of S3: s3rver."""
    with s3rver(BUCKET) as host:
        yield host


@pytest.fixture(params=["moto", pytest.param("s3rver", marks=pytest.mark.server)])
def each_store(request):
    """A bucket of each implementation."""
    if request.param == "moto":
        yield request.getfixturevalue("object_store")
        return
    made = Store(request.getfixturevalue("other_server"), "S3RVER:S3RVER")
    yield made
    made.system.delete_dir_contents(BUCKET)
