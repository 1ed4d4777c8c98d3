"""The names of `penstock.connectors.hybrid_source`, where PyFlink's programs import them."""

from penstock.connectors.hybrid_source import *
from penstock.connectors.hybrid_source import __all__ as __all__
