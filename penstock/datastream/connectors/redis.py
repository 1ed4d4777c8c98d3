"""The names of `penstock.connectors.redis`, where PyFlink's programs import them."""

from penstock.connectors.redis import *
from penstock.connectors.redis import __all__ as __all__
