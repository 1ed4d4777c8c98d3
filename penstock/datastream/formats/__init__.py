"""File formats of connectors: pyflink.datastream.formats."""
