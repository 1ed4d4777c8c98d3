"""OutputTag under PyFlink's name. Source: pyflink.datastream.output_tag."""

from penstock.engine.runtime.records.side_output import OutputTag

__all__ = ["OutputTag"]
