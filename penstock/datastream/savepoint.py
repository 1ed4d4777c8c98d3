"""Reading savepoints from a program: `read_savepoint(path)`. Not in PyFlink; after Flink's State Processor API."""

from penstock.engine.hosting.checkpoints.reader import (
    KeyedRows,
    OperatorView,
    Savepoint,
    read_savepoint,
)

__all__ = ["KeyedRows", "OperatorView", "Savepoint", "read_savepoint"]
