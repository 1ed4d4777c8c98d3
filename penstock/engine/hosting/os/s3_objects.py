"""Objects of an S3 bucket through boto3: what Arrow's client cannot do, or not without a trace.

Arrow puts an empty object, `folder/`, where it has removed the last object of a folder, and has no way to remove that
one alone. Knows no checkpoint. Source: the reference of S3's API; the query of a URI is Arrow's (S3Options::FromUri).
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

KNOWN: Final = frozenset({"region", "scheme", "endpoint_override", "allow_bucket_creation"})
_MARK: Final = "penstock-part"
_CONNECTIONS: Final = 32
_AT_ONCE: Final = 1000
"""Of `DeleteObjects` and `ListObjectsV2`."""
_MISSING: Final = frozenset({"404", "NoSuchKey", "NotFound"})
_REFUSED: Final = _MISSING | {"412", "PreconditionFailed", "409", "ConditionalRequestConflict"}


def s3_objects(uri: str, limit_s: float | None = None) -> S3Objects | None:
    """Return the objects of a URI's server. None: boto3 is not installed, or the URI has options
    that boto3 does not take. `limit_s`: of a request, which is tried twice; None: boto3's own limits.
    """
    parts = urlsplit(uri)
    query = dict(parse_qsl(parts.query))
    if parts.scheme != "s3" or not query.keys() <= KNOWN:
        return None
    if importlib.util.find_spec("boto3") is None:
        return None
    answer = tuple(sorted(query.items()))
    return S3Objects(lambda: _client(parts.username, parts.password, answer, limit_s))


@functools.lru_cache(maxsize=16)
def _client(
    user: str | None,
    password: str | None,
    query: tuple[tuple[str, str], ...],
    limit_s: float | None,
) -> Any:
    """A client is safe for any thread, and slow to make, so it is made when it is needed."""
    import boto3
    from botocore.config import Config

    answer = dict(query)
    server = answer.get("endpoint_override")
    settings: dict[str, Any] = {
        "request_checksum_calculation": "when_required",
        "max_pool_connections": _CONNECTIONS,
    }
    if limit_s is not None:
        limits = {"connect_timeout": limit_s / 2, "read_timeout": limit_s / 2}
        settings |= {**limits, "retries": {"total_max_attempts": 2}}
    if server:
        settings["s3"] = {"addressing_style": "path"}
    return boto3.session.Session().client(
        "s3",
        region_name=answer.get("region"),
        endpoint_url=f"{answer.get('scheme', 'https')}://{server}" if server else None,
        aws_access_key_id=unquote(user) if user else None,
        aws_secret_access_key=unquote(password) if password else None,
        config=Config(**settings),
    )


class S3Objects:
    """Paths are `bucket/key`, as Arrow's are. Every method raises OSError. Any thread."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def remove(self, path: str) -> None:
        """Remove an object, and all below it as a folder. Does nothing if there is nothing."""
        bucket, key = _parted(path)
        with _os_errors(f"remove {path}"):
            client = self._client()
            keys = _keys(client, bucket, f"{key}/")
            while some := [{"Key": one} for _, one in zip(range(_AT_ONCE), keys, strict=False)]:
                answer = client.delete_objects(
                    Bucket=bucket, Delete={"Objects": some, "Quiet": True}
                )
                _check_all_removed(answer)
            client.delete_object(Bucket=bucket, Key=key)

    def rename(self, source: str, target: str) -> None:
        """Copy an object, and remove it. Objects of any size: large ones are copied in parts."""
        (bucket, key), (to_bucket, to_key) = _parted(source), _parted(target)
        with _os_errors(f"rename {source} to {target}"):
            client = self._client()
            client.copy({"Bucket": bucket, "Key": key}, to_bucket, to_key)
            client.delete_object(Bucket=bucket, Key=key)

    # ------------------------------------------------------------------ writes on condition

    def names(self, folder: str) -> list[str]:
        """Return the names of all objects right below a folder."""
        bucket, key = _parted(folder)
        with _os_errors(f"list {folder}"):
            names = [
                one.removeprefix(f"{key}/") for one in _keys(self._client(), bucket, f"{key}/")
            ]
        return [name for name in names if "/" not in name]

    def get(self, path: str) -> tuple[bytes, str] | None:
        """Return an object and its tag. None: there is no such object."""
        bucket, key = _parted(path)
        found: dict[str, Any] = {}

        def read() -> None:
            answer = self._client().get_object(Bucket=bucket, Key=key)
            found.update(data=answer["Body"].read(), etag=answer["ETag"])

        with _os_errors(f"read {path}"):
            return (found["data"], found["etag"]) if _unless(_MISSING, read) else None

    def put_if(self, path: str, data: bytes, etag: str | None) -> bool:
        """Write an object that has this tag; None: that does not exist. False: the server refused it."""
        bucket, key = _parted(path)
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        with _os_errors(f"write {path}"):
            return _unless(
                _REFUSED,
                lambda: self._client().put_object(Bucket=bucket, Key=key, Body=data, **condition),
            )

    # ------------------------------------------------------------------ uploads in parts

    def begin_upload(self, path: str, mark: str) -> str:
        """Begin an upload, and return its id. `mark`: what `mark_of` returns of the object that it becomes."""
        bucket, key = _parted(path)
        with _os_errors(f"write {path}"):
            answer = self._client().create_multipart_upload(
                Bucket=bucket, Key=key, Metadata={_MARK: mark}
            )
            return str(answer["UploadId"])

    def send_part(self, path: str, upload_id: str, number: int, data: bytes) -> str:
        """Send one part, counted from 1, and return its tag."""
        bucket, key = _parted(path)
        with _os_errors(f"write part {number} of {path}"):
            answer = self._client().upload_part(
                Bucket=bucket, Key=key, UploadId=upload_id, PartNumber=number, Body=data
            )
            return str(answer["ETag"])

    def complete_upload(self, path: str, upload_id: str, etags: Sequence[str]) -> bool:
        """Make an object of the parts. False: there is no such upload (any more)."""
        bucket, key = _parted(path)
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
        with _os_errors(f"complete the upload of {path}"):
            return _unless(
                {"NoSuchUpload"},
                lambda: self._client().complete_multipart_upload(
                    Bucket=bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": parts}
                ),
            )

    def drop_upload(self, path: str, upload_id: str) -> None:
        """Remove an upload with its parts, if it is there. Some small servers cannot."""
        bucket, key = _parted(path)
        with _os_errors(f"drop the upload of {path}"):
            _unless(
                {"NoSuchUpload", "NotImplemented", "MethodNotAllowed"},
                lambda: self._client().abort_multipart_upload(
                    Bucket=bucket, Key=key, UploadId=upload_id
                ),
            )

    def uploads(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Yield paths and ids of the uploads that are not completed, whose paths begin with `prefix`."""
        bucket, _, key = prefix.partition("/")
        with _os_errors(f"list uploads below {prefix}"):
            pages = self._client().get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=bucket, Prefix=key):
                for one in page.get("Uploads", ()):
                    yield f"{bucket}/{one['Key']}", one["UploadId"]

    def mark_of(self, path: str) -> str | None:
        """Return the mark of an object; '' if it has none; None: there is no such object."""
        bucket, key = _parted(path)
        found: dict[str, Any] = {}
        with _os_errors(f"look at {path}"):
            if not _unless(
                _MISSING,
                lambda: found.update(self._client().head_object(Bucket=bucket, Key=key)),
            ):
                return None
        return str(found.get("Metadata", {}).get(_MARK, ""))


def _unless(codes: AbstractSet[str], call: Callable[[], object]) -> bool:
    """Call. False: the server answered with one of these codes."""
    from botocore.exceptions import ClientError

    try:
        call()
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") in codes:
            return False
        raise
    return True


def _keys(client: Any, bucket: str, prefix: str) -> Iterator[str]:
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        yield from (one["Key"] for one in page.get("Contents", ()))


def _parted(path: str) -> tuple[str, str]:
    bucket, _, key = path.strip("/").partition("/")
    if not key:
        raise OSError(f"{path!r} is a whole bucket, which is not removed")
    return bucket, key


def _check_all_removed(answer: Mapping[str, Any]) -> None:
    for one in answer.get("Errors", ()):
        raise OSError(f"{one.get('Key')}: {one.get('Code')}: {one.get('Message')}")


@contextlib.contextmanager
def _os_errors(what: str) -> Generator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise OSError(f"cannot {what}: {error}") from error
