"""A stand-in for PyFlink 1's kinds of time, which names their replacements. Source:
pyflink.datastream.time_characteristic.
"""

from penstock.common.absent import absent
from penstock.connectors.former_names import OF_THE_PACKAGE

_NAME = "TimeCharacteristic"

__getattr__ = absent(__name__, {_NAME: OF_THE_PACKAGE[_NAME]})
