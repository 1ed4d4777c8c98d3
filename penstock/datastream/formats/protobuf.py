"""The names of `penstock.formats.protobuf`, where PyFlink's programs import them."""

from penstock.formats.protobuf import *
from penstock.formats.protobuf import __all__ as __all__
