"""Iceberg tables in a SQLite catalog, read and written by pyiceberg, which knows nothing of Penstock."""

from __future__ import annotations

import json
import struct
import zlib
from contextlib import contextmanager

from pyiceberg.catalog import load_catalog
from pyroaring import BitMap

CATALOG = "lake"


class Lake:
    """A catalog in a folder. `warehouse`: where tables lie; None: in the folder too."""

    def __init__(self, folder, warehouse=None, **properties):
        folder.mkdir(parents=True, exist_ok=True)
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": warehouse or str(folder / "warehouse"),
            **properties,
        }

    @contextmanager
    def catalog(self):
        with load_catalog(CATALOG, **self.properties) as catalog:
            yield catalog

    def create(self, name, schema, partitioning=(), **properties):
        """`partitioning`: (column, transform) pairs."""
        with self.catalog() as catalog:
            catalog.create_namespace_if_not_exists(name.partition(".")[0])
            begun = catalog.create_table_transaction(name, schema, properties=properties)
            with begun as transaction, transaction.update_spec() as spec:
                for column, transform in partitioning:
                    spec.add_field(column, transform)

    def table(self, name):
        """The table as it is now."""
        with self.catalog() as catalog:
            return catalog.load_table(name)

    def append(self, name, rows):
        """`rows`: a pyarrow.Table."""
        with self.catalog() as catalog:
            catalog.load_table(name).append(rows)

    def rows(self, name, **scan):
        found = self.table(name).scan(**scan).to_arrow()
        return sorted(found.to_pylist(), key=str)


def deletion_vector(data_file, positions):
    """A Puffin file with the deletion vector of a data file. Source: Iceberg's Puffin specification, deletion-vector-v1."""
    bitmap = struct.pack("<QI", 1, 0) + BitMap(positions).serialize()
    vector = bytes.fromhex("d1d33964") + bitmap
    blob = struct.pack(">I", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
    described = {
        "type": "deletion-vector-v1",
        "fields": [],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": 4,
        "length": len(blob),
        "properties": {"referenced-data-file": data_file, "cardinality": str(len(positions))},
    }
    footer = json.dumps({"blobs": [described]}).encode()
    return b"PFA1" + blob + b"PFA1" + footer + struct.pack("<ii", len(footer), 0) + b"PFA1"
