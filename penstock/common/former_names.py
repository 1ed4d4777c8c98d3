"""Names of PyFlink 1 that PyFlink 2 has moved, with their modules. Does not know any class. Source: pyflink.common of Flink 1.x."""

from typing import Final

ROW_SCHEMAS: Final = {
    f"{kind}Row{way}Schema": f"penstock.datastream.formats.{kind.lower()}"
    for kind in ("Json", "Csv", "Avro")
    for way in ("Serialization", "Deserialization")
}
"""The module one floor above: PyFlink 1 had these names here, and PyFlink 2 also has them in pyflink.common."""
