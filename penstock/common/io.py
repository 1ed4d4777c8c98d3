"""InputFormat, kept so that programs import.

Source: pyflink.common.io; differs: names no Java class.
"""


class InputFormat:
    """Only sources read data here: see `penstock.datastream.connectors`."""
