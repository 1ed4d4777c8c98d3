"""TypeSerializer under PyFlink's name. Source: pyflink.common.serializer."""

from penstock.engine.runtime.windows import TypeSerializer

__all__ = ["TypeSerializer"]
