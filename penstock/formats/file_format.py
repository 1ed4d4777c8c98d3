"""File formats: how the bytes of a file become batches. Does not know the enumerator; each format has its own module.

Source: Flink StreamFormat, BulkFormat; differs: formats are Python classes that return whole batches, and decide
themselves how a file may be cut.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from penstock.common.io import InputFormat
from penstock.common.typeinfo import TypeInformation
from penstock.engine.runtime.elements import Batch
from penstock.formats.file_listing import FilePiece, FoundFile


class FileFormat(ABC):
    """Splits files in the enumerator, and reads the pieces in the readers. It is pickled."""

    @abstractmethod
    def pieces(self, path: str, split_bytes: int) -> Iterator[FilePiece]:
        """Yield the pieces in which this file may be read."""

    def pieces_of(self, file: FoundFile, split_bytes: int) -> Iterator[FilePiece]:
        """As `pieces`, of a file that was listed. What the list tells need not be asked again."""
        return self.pieces(file.path, split_bytes)

    @abstractmethod
    def read(self, piece: FilePiece) -> Iterator[Batch]:
        """Yield the batches of one piece, each of at most about 4,096 rows or 1 MiB."""

    def reading(self, names: Sequence[str]) -> FileFormat:
        """Return the format for programs that read only these fields of its Rows, as Python values; by default itself.

        Its batches may be `PartialColumns`.
        """
        return self

    @property
    def produced_type(self) -> TypeInformation | None:
        """The type of the records; None: not declared."""
        return None


class BulkFormat(FileFormat):
    """A format that reads whole column batches."""


class FileInputFormat(InputFormat, ABC):
    """Describes files for `env.create_input`. `path`: a file, a directory or a glob."""

    path: str

    @property
    @abstractmethod
    def file_format(self) -> FileFormat:
        """The format that reads the files."""
