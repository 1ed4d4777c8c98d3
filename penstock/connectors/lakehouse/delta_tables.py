"""Opens Delta tables, and says what of a stream does not fit one. Needs the package `deltalake` (`penstock[delta]`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote

import pyarrow as pa

from penstock.common.extras import extra
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.texts.redaction import without_credentials
from penstock.formats.file_access import Address, is_remote, shown

if TYPE_CHECKING:
    from deltalake import DeltaTable

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_READER_FEATURES: Final = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
_READER_VERSION: Final = 3
"""With a list of features; 1 has none, and 2 is column mapping."""


def import_deltalake(where: str) -> Any:
    return extra("deltalake", "delta", where)


def storage_of(path: str, options: Mapping[str, str]) -> dict[str, str]:
    """The storage options of deltalake: keys, server and region in the address, under their names there, and `options`, which win."""
    if not is_remote(path):
        return dict(options)
    address, made = Address.of(path), dict[str, str]()
    query = {name: values[0] for name, values in parse_qs(address.query[1:]).items()}
    user, _, _ = address.netloc.rpartition("@")
    if user and address.scheme == "s3":
        key, _, secret = user.partition(":")
        made |= {"AWS_ACCESS_KEY_ID": unquote(key), "AWS_SECRET_ACCESS_KEY": unquote(secret)}
    if endpoint := query.get("endpoint_override"):
        scheme = query.get("scheme", "https")
        made["AWS_ENDPOINT_URL"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        made["AWS_ALLOW_HTTP"] = str(scheme == "http").lower()
    if region := query.get("region"):
        made["AWS_REGION"] = region
    return made | dict(options)


def opened(
    path: str, options: Mapping[str, str], *, version: int | None = None
) -> DeltaTable | None:
    """The table, at its last version or another one; None: there is none. Raises ExternalError: it cannot be read."""
    deltalake = import_deltalake("a Delta table")
    uri, storage = _plain(path), storage_of(path, options)
    try:
        # `is_deltatable` would keep Python's lock while it asks a server.
        found: DeltaTable = deltalake.DeltaTable(uri, version=version, storage_options=storage)
    except deltalake.exceptions.TableNotFoundError:
        return None
    except (deltalake.exceptions.DeltaError, OSError) as error:
        raise ExternalError(
            f"the Delta table {shown(path)!r} cannot be opened: {cause_of(error)}. Check the path, "
            "and that the driver and all executors may read and write it."
        ) from error
    return found


def created(
    path: str, options: Mapping[str, str], schema: pa.Schema, partition_by: list[str]
) -> DeltaTable:
    """The table, made if there is none. Raises ExternalError."""
    deltalake = import_deltalake("a Delta table")
    found = opened(path, options)
    if found is not None:
        return found
    try:
        made: DeltaTable = deltalake.DeltaTable.create(
            _plain(path),
            schema,
            mode="ignore",
            partition_by=partition_by,
            storage_options=storage_of(path, options),
        )
    except Exception as error:
        # delta-rs has no class of its own for a type that Delta does not know, such as a time of day.
        raise ExternalError(
            f"the Delta table {shown(path)!r} cannot be made: {cause_of(error)}. Check the path "
            f"and the fields: {', '.join(f'{one.name}: {one.type}' for one in schema)}."
        ) from error
    return made


def cause_of(error: BaseException | None) -> str:
    """The innermost cause, which delta-rs writes last, without colours and credentials."""
    text = str(error).partition("\n   0: ")[0]  # without frames of Rust
    lines = [_COLOURS.sub("", line).strip(" \u21b3.") for line in text.splitlines()]
    texts = [line for line in lines if line] or [type(error).__name__]
    return without_credentials(texts[0] if len(texts) == 1 else f"{texts[0]}: {texts[-1]}")


def schema_of_table(table: DeltaTable) -> pa.Schema:
    """Its columns in Arrow."""
    return pa.schema(table.schema().to_arrow())


def check_readable(table: DeltaTable, path: str) -> None:
    """Raises ConfigurationError: its rows do not follow from its files alone (deletion vectors,
    column mapping).
    """
    protocol = table.protocol()
    features = set(protocol.reader_features or ())
    unknown = features - _READER_FEATURES
    if protocol.min_reader_version == 2:
        unknown.add("columnMapping")
    if unknown or protocol.min_reader_version > _READER_VERSION:
        raise ConfigurationError(
            f"DeltaSource: the table {shown(path)!r} needs readers that know "
            f"{', '.join(sorted(unknown)) or f'version {protocol.min_reader_version}'}, which "
            "Penstock does not. Read it with Spark and env.from_spark(df), or remove the feature "
            "from the table (ALTER TABLE ... DROP FEATURE)."
        )


def _plain(path: str) -> str:
    """The path without the query, which is ours."""
    if not is_remote(path):
        return path
    address = Address.of(path)
    netloc = address.netloc.rpartition("@")[2] if address.scheme == "s3" else address.netloc
    return f"{address.scheme}://{netloc}/{address.path}"
