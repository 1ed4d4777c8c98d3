"""The names of `penstock.connectors.jdbc`, where PyFlink's programs import them."""

from penstock.connectors.jdbc import *
from penstock.connectors.jdbc import __all__ as __all__
