"""A stand-in for PyFlink's access to Java, which says what to use instead. Source: pyflink.java_gateway."""

from penstock.common.absent import absent

_INSTEAD = (
    "Programs do not run in Java here, so Java classes cannot be called. Replace the class of a "
    "jar by a Python function, or by a subclass of penstock.datastream.connectors.Source or Sink."
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
