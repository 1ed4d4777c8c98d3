"""The names of `penstock.connectors.http`, where PyFlink's programs import them."""

from penstock.connectors.http import *
from penstock.connectors.http import __all__ as __all__
