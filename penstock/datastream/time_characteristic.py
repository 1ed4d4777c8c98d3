"""Stands where PyFlink 1 had its kinds of time, and says what there is today. Source: pyflink.datastream.time_characteristic."""

from penstock.common.absent import absent
from penstock.datastream.building.former_names import OF_THE_PACKAGE

_NAME = "TimeCharacteristic"

__getattr__ = absent(__name__, {_NAME: OF_THE_PACKAGE[_NAME]})
