"""The names of `penstock.connectors.kafka`, where PyFlink's programs import them."""

from penstock.connectors.kafka import *
from penstock.connectors.kafka import __all__ as __all__
from penstock.connectors.kafka import __getattr__ as __getattr__
