"""Parts as hidden objects of S3, for a sink that reads them again: one that compacts. The commit renames, which copies.

boto3 writes, renames and removes them: Arrow leaves empty objects behind what it removes, copies no object of more than 5 GiB, and
writes in a way that some servers take for the content.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO

from penstock.datastream.connectors.files.hidden_parts import ArrowParts
from penstock.datastream.connectors.files.parts import Part, PartOutput
from penstock.datastream.connectors.files.uploads import (
    SENT_AT_ONCE,
    UploadOutput,
    UploadParts,
    told,
)
from penstock.datastream.formats.file_access import Address
from penstock.hosting.s3_objects import S3Objects


class HiddenUploads(ArrowParts):
    """In a bucket. Arrow lists it."""

    def __init__(self, address: Address, token: str, objects: S3Objects) -> None:
        super().__init__(address, token)
        self._at = address
        self._objects = objects
        self._threads: ThreadPoolExecutor | None = None

    def check(self) -> None:
        UploadParts(self._at, self._objects).check()

    def create(self, hidden: str, final: str) -> PartOutput:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(SENT_AT_ONCE, "s3-upload")
        return _ObjectOutput(self._objects, hidden, final, self._threads)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def _rename(self, source: str, target: str) -> None:
        with told():
            self._objects.rename(source, target)

    def _remove(self, path: str) -> None:
        with told():
            self._objects.remove(path)


class _ObjectOutput:
    """An object that is there, under its hidden name, when it is finished."""

    def __init__(
        self, objects: S3Objects, hidden: str, final: str, threads: ThreadPoolExecutor
    ) -> None:
        self._objects = objects
        self._part = Part(hidden, final)
        self._upload = UploadOutput(objects, hidden, threads)
        self._is_there = False
        self.file: BinaryIO = self._upload.file

    def seal(self) -> int:
        return self._upload.seal()

    def finish(self) -> Part:
        upload = self._upload.finish().upload
        assert upload is not None, "it is one"
        with told():
            self._objects.complete_upload(self._part.hidden, upload.upload_id, upload.etags)
        self._is_there = True
        return self._part

    def discard(self, *, is_kept: bool = False) -> None:
        if not self._is_there:
            self._upload.discard(is_kept=is_kept)
        elif not is_kept:
            with told():
                self._objects.remove(self._part.hidden)
