"""TEMPORARY."""
try:
    from penstock.runtime.columns import Column
except ImportError:
    class Column: ...
