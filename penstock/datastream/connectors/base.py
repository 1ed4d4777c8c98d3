"""The names of `penstock.connectors.api.base`, where PyFlink's programs import them."""

from penstock.connectors.api.base import *
from penstock.connectors.api.base import __all__ as __all__
