"""The names of `penstock.formats.avro`, where PyFlink's programs import them."""

from penstock.formats.avro import *
from penstock.formats.avro import __all__ as __all__
