"""The names of `penstock.connectors.elasticsearch`, where PyFlink's programs import them."""

from penstock.connectors.elasticsearch import *
from penstock.connectors.elasticsearch import __all__ as __all__
