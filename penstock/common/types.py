"""Row and RowKind under PyFlink's name. Source: pyflink.common.types."""

from penstock.engine.model.row import Row, RowKind

__all__ = ["Row", "RowKind"]
