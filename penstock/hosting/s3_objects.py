"""Objects of an S3 bucket through boto3: what Arrow's client cannot do, or not without a trace.

Arrow puts an empty object, `folder/`, where it has removed the last object of a folder, and has no way to remove that
one alone. Knows no checkpoint. Source: the reference of S3's API; the query of a URI is Arrow's (S3Options::FromUri).
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

_KNOWN: Final = frozenset({"region", "scheme", "endpoint_override", "allow_bucket_creation"})
_AT_ONCE: Final = 1000
"""Of `DeleteObjects` and `ListObjectsV2`."""


def s3_objects(uri: str) -> S3Objects | None:
    """Return the objects of a URI's server. None: boto3 is not installed, or the URI says what boto3 is not told that way."""
    parts = urlsplit(uri)
    query = dict(parse_qsl(parts.query))
    if parts.scheme != "s3" or not query.keys() <= _KNOWN:
        return None
    if importlib.util.find_spec("boto3") is None:
        return None
    told = tuple(sorted(query.items()))
    return S3Objects(lambda: _client(parts.username, parts.password, told))


@functools.lru_cache(maxsize=16)
def _client(user: str | None, password: str | None, query: tuple[tuple[str, str], ...]) -> Any:
    """A client is safe for any thread, and slow to make, so it is made when it is needed."""
    import boto3
    from botocore.config import Config

    told = dict(query)
    server = told.get("endpoint_override")
    settings: dict[str, Any] = {"request_checksum_calculation": "when_required"}
    if server:
        settings["s3"] = {"addressing_style": "path"}
    return boto3.session.Session().client(
        "s3",
        region_name=told.get("region"),
        endpoint_url=f"{told.get('scheme', 'https')}://{server}" if server else None,
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
                told = client.delete_objects(Bucket=bucket, Delete={"Objects": some, "Quiet": True})
                _check_all_removed(told)
            client.delete_object(Bucket=bucket, Key=key)


def _keys(client: Any, bucket: str, prefix: str) -> Iterator[str]:
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        yield from (one["Key"] for one in page.get("Contents", ()))


def _parted(path: str) -> tuple[str, str]:
    bucket, _, key = path.strip("/").partition("/")
    if not key:
        raise OSError(f"{path!r} is a whole bucket, which is not removed")
    return bucket, key


def _check_all_removed(told: Mapping[str, Any]) -> None:
    for one in told.get("Errors", ()):
        raise OSError(f"{one.get('Key')}: {one.get('Code')}: {one.get('Message')}")


@contextlib.contextmanager
def _os_errors(what: str) -> Generator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise OSError(f"cannot {what}: {error}") from error
