"""TypeSerializer under PyFlink's address. Knows nothing else. Source: pyflink.common.serializer."""

from penstock.runtime.windowing.serializers import TypeSerializer

__all__ = ["TypeSerializer"]
