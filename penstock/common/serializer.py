"""TypeSerializer under PyFlink's name. Source: pyflink.common.serializer."""

from penstock.engine.runtime.windowing.serializers import TypeSerializer

__all__ = ["TypeSerializer"]
