"""How the bytes of a file become batches. Knows no enumerator; formats have modules of their own.

Source: Flink StreamFormat, BulkFormat; differs: formats are Python classes that give whole batches, and say themselves how
a file may be cut.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from penstock.common.io import InputFormat
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.formats.file_listing import FilePiece
from penstock.runtime.elements import Batch


class FileFormat(ABC):
    """Picklable; used by the enumerator to cut files and by the readers to read the pieces."""

    @abstractmethod
    def pieces(self, path: str, split_bytes: int) -> Iterator[FilePiece]:
        """How this file may be read in parts."""

    @abstractmethod
    def read(self, piece: FilePiece) -> Iterator[Batch]:
        """The batches of one part, each of at most about 4,096 rows or 1 MiB."""

    @property
    def produced_type(self) -> TypeInformation | None:
        return None


class BulkFormat(FileFormat):
    """Reads whole column batches."""


class FileInputFormat(InputFormat, ABC):
    """Files that `env.create_input` reads. `path`: a file, a directory or a glob."""

    path: str

    @property
    @abstractmethod
    def file_format(self) -> FileFormat:
        """How they are read."""
