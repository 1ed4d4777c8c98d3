"""Which store keeps the parts of a FileSink: by its path, and by whether its parts are read again.

Parts that wait for compaction have to be read, and an upload cannot be read before it is completed. So a sink that compacts writes
hidden objects.
"""

from __future__ import annotations

from penstock.common.extras import extra
from penstock.datastream.connectors.files.hidden_parts import ArrowParts, LocalParts
from penstock.datastream.connectors.files.hidden_uploads import HiddenUploads
from penstock.datastream.connectors.files.parts import PartStore
from penstock.datastream.connectors.files.settings import _SinkSettings
from penstock.datastream.connectors.files.uploads import UploadParts
from penstock.datastream.formats.file_access import Address, is_remote
from penstock.hosting.s3_objects import KNOWN, s3_objects
from penstock.model.errors import ConfigurationError


def store_of(settings: _SinkSettings) -> PartStore:
    """The store of a sink. Raises: ConfigurationError: there is none for its path, or this Python has no client for it."""
    if not is_remote(settings.base_path):
        return LocalParts(settings.base_path, settings.token)
    address = Address.of(settings.base_path)
    if address.scheme != "s3":
        return ArrowParts(address, settings.token)
    extra("boto3", "s3", "FileSink to 's3:'")
    objects = s3_objects(str(address))
    if objects is None:
        raise ConfigurationError(
            f"FileSink: the query of {address.shown!r} has parameters that boto3 is not told that "
            f"way. Expected only {', '.join(sorted(KNOWN))}. Set others by the environment or the "
            "file of AWS's settings."
        )
    if not address.netloc.rpartition("@")[2]:
        raise ConfigurationError(
            f"FileSink: {address.shown!r} names no bucket. Expected s3://bucket/path."
        )
    if settings.compaction is not None:
        return HiddenUploads(address, settings.token, objects)
    return UploadParts(address, objects)
