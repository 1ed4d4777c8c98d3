"""Row and RowKind under PyFlink's address. Knows nothing else. Source: pyflink.common.types."""

from penstock.model.row import Row, RowKind

__all__ = ["Row", "RowKind"]
