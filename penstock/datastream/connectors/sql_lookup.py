"""The names of `penstock.connectors.sql_lookup`, where PyFlink's programs import them."""

from penstock.connectors.sql_lookup import *
from penstock.connectors.sql_lookup import __all__ as __all__
