"""OutputTag under PyFlink's address. Source: pyflink.datastream.output_tag."""

from penstock.runtime.side_output import OutputTag

__all__ = ["OutputTag"]
