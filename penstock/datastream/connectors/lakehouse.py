"""The names of `penstock.connectors.lakehouse`, where PyFlink's programs import them."""

from penstock.connectors.lakehouse import *
from penstock.connectors.lakehouse import __all__ as __all__
