"""Iceberg tables in a SQLite catalog, read and written by pyiceberg, which knows nothing of Penstock."""

from __future__ import annotations

from contextlib import contextmanager

from pyiceberg.catalog import load_catalog

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
