"""Stands where PyFlink has its way into Java, and says what to use instead. Source: pyflink.java_gateway."""

from penstock.common.absent import absent

_INSTEAD = (
    "No program runs in Java here, so nothing of Java can be called. What a class of a jar did, do in a Python function, or in a "
    "subclass of penstock.datastream.connectors.Source or Sink."
)

__getattr__ = absent(
    __name__,
    dict.fromkeys(
        (
            "get_gateway",
            "launch_gateway",
            "import_flink_view",
            "is_launch_gateway_disabled",
            "java_import",
        ),
        _INSTEAD,
    ),
)
