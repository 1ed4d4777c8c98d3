"""The names of `penstock.connectors.cdc`, where PyFlink's programs import them."""

from penstock.connectors.cdc import *
from penstock.connectors.cdc import __all__ as __all__
