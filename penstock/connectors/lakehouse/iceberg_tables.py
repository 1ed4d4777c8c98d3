"""Catalogs and tables of Iceberg: opens them, makes them, and holds a stream against them. Needs the package `pyiceberg`
(`penstock[iceberg]`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from penstock.common.extras import extra
from penstock.engine.hosting.os.clock import within
from penstock.engine.model.errors import ConfigurationError, ExternalError, PenstockError
from penstock.engine.model.texts.redaction import without_credentials

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

_TRANSFORM: Final = re.compile(
    r"\s*(?:(?P<name>\w+)\s*\(\s*(?:(?P<width>\d+)\s*,\s*)?(?P<inside>[^(),]+?)\s*\)"
    r"|(?P<plain>[^(),]+?))\s*"
)
_PLAIN: Final = frozenset({"identity", "year", "month", "day", "hour", "void"})
_WITH_WIDTH: Final = frozenset({"bucket", "truncate"})
TIMEOUT: Final = "penstock.timeout-ms"
TIMEOUT_MS: Final = 600_000

T = TypeVar("T")


def import_pyiceberg(where: str) -> Any:
    return extra("pyiceberg.catalog", "iceberg", where)


@dataclass(frozen=True, slots=True)
class TableName:
    """A table in a catalog. `properties`: of the catalog, as pyiceberg names them; they may hold secrets."""

    identifier: str
    catalog: str = "default"
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return f"{self.identifier!r} of the catalog {self.catalog!r}"

    @property
    def configured(self) -> TableName:
        """The same with what this machine's configuration of pyiceberg (.pyiceberg.yaml, PYICEBERG_...) says of the catalog: executors
        need not have it.
        """
        config = extra("pyiceberg.utils.config", "iceberg", "an Iceberg table").Config()
        found = config.get_catalog_config(self.catalog) or {}
        return TableName(self.identifier, self.catalog, {**found, **self.properties})


def answered(name: TableName, what: str, call: Callable[[], T]) -> T:
    """What a call that asks the catalog returns: pyiceberg waits for a REST catalog for ever.

    `what`: for the error, as `it cannot be opened`. Raises: NoAnswer.
    """
    given = str(name.properties.get(TIMEOUT, TIMEOUT_MS))
    if not given.isdecimal() or int(given) == 0:
        raise ConfigurationError(
            f"the Iceberg table {name}: the property {TIMEOUT!r} is {given!r}, expected 1 or more."
        )
    more = f" The property {TIMEOUT!r} of the catalog allows more time."
    return within(int(given) / 1000, call, f"the Iceberg table {name}: {what}", more)


@contextlib.contextmanager
def catalog_of(name: TableName) -> Generator[Catalog, None, None]:
    """Open the catalog, and close it after the block. Raises ExternalError: it cannot be reached,
    or a call in the block fails.
    """
    from pyiceberg.exceptions import CommitFailedException

    catalog: Catalog | None = None
    try:
        loaded = import_pyiceberg("an Iceberg table").load_catalog(name.catalog, **name.properties)
        catalog = loaded
        yield loaded
    except (PenstockError, CommitFailedException):
        raise
    except Exception as error:  # Catalogs raise what their clients and databases raise.
        raise ExternalError(
            f"the Iceberg table {name} cannot be reached: {cause_of(error)}. Check the catalog's "
            "properties, and that the driver and all executors reach the catalog and the table's "
            "files."
        ) from error
    finally:
        if catalog is not None:
            with contextlib.suppress(Exception):
                catalog.close()


def found_in(catalog: Catalog, name: TableName) -> Table | None:
    """The table as it is now; None: there is none."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        return catalog.load_table(name.identifier)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


def opened(name: TableName) -> Table | None:
    """The table as it is now; None: there is none. It reads and writes files without the catalog. Raises ExternalError."""

    def call() -> Table | None:
        with catalog_of(name) as catalog:
            return found_in(catalog, name)

    return answered(name, "it cannot be opened", call)


def create(
    name: TableName, schema: pa.Schema, partitioning: Sequence[str], properties: Mapping[str, str]
) -> Table:
    """Make the table, and its namespace. Another process may do the same. Raises ConfigurationError, ExternalError."""
    call = partial(_create, name, schema, partitioning, properties)
    return answered(name, "it cannot be made", call)


def _create(
    name: TableName, schema: pa.Schema, partitioning: Sequence[str], properties: Mapping[str, str]
) -> Table:
    from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
    from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException

    with catalog_of(name) as catalog:
        namespace = name.identifier.rpartition(".")[0]
        if namespace:
            catalog.create_namespace_if_not_exists(namespace)
        try:
            begun = catalog.create_table_transaction(
                name.identifier, schema, properties=dict(properties)
            )
            with begun as transaction:
                _partition(transaction, partitioning)
        except (TableAlreadyExistsError, CommitFailedException):
            pass  # Another one was faster.
        except (TypeError, ValueError, UnsupportedPyArrowTypeException) as error:
            raise ConfigurationError(
                f"the Iceberg table {name} cannot be made: {cause_of(error)}. Check the fields, "
                f"{', '.join(f'{one.name}: {one.type}' for one in schema)}, and the partitioning, "
                f"{list(partitioning)}."
            ) from error
        return catalog.load_table(name.identifier)


def _partition(transaction: Any, partitioning: Sequence[str]) -> None:
    if not partitioning:
        return
    with transaction.update_spec() as spec:
        for one in partitioning:
            column, transform = parsed(one)
            spec.add_field(column, transform, _field_name(column, str(transform)))


def parsed(text: str) -> tuple[str, Any]:
    """(column, transform) of a partitioning such as `day(time)`, `bucket(16, id)` or `name`. Raises ConfigurationError."""
    from pyiceberg.transforms import parse_transform

    found = _TRANSFORM.fullmatch(text)
    if found is not None:
        name, width = found["name"], found["width"]
        if name is None:
            return found["plain"], parse_transform("identity")
        if name in _PLAIN and width is None:
            return found["inside"], parse_transform(name)
        if name in _WITH_WIDTH and width is not None and int(width) > 0:
            return found["inside"], parse_transform(f"{name}[{width}]")
    raise ConfigurationError(
        f"with_partitioning: got {text!r}. Expected a column's name, or year(column), "
        "month(column), day(column), hour(column), bucket(16, column) or truncate(4, column)."
    )


def partitioning_of(spec: PartitionSpec, schema: Schema) -> list[str]:
    """As `with_partitioning` takes it."""
    shown = []
    for one in spec.fields:
        column, transform = schema.find_column_name(one.source_id), str(one.transform)
        name, _, width = transform.rstrip("]").partition("[")
        if name == "identity":
            shown.append(str(column))
        else:
            shown.append(f"{name}({width}, {column})" if width else f"{name}({column})")
    return shown


def arrow_schema_of(schema: Schema) -> pa.Schema:
    """Its columns in Arrow, with Iceberg's ids."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    found: pa.Schema = schema_to_pyarrow(schema)
    return found


def cause_of(error: BaseException) -> str:
    """In one line, without credentials."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return without_credentials(lines[0] if lines else type(error).__name__)


def checked_call(name: TableName, what: str, call: Callable[[], Any]) -> Any:
    """What a call of pyiceberg on the table returns. Raises ExternalError. `what`: for the error, as `its files cannot be listed`."""
    try:
        return call()
    except ExternalError:
        raise
    except Exception as error:  # File systems and catalogs raise what their clients raise.
        raise ExternalError(f"the Iceberg table {name}: {what}: {cause_of(error)}") from error


def _field_name(column: str, transform: str) -> str:
    """The name of a partition field, as Spark and Flink choose it."""
    kind = transform.partition("[")[0]
    if kind == "identity":
        return column
    return f"{column}_{'trunc' if kind == 'truncate' else kind}"
