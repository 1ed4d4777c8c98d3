"""The names of `penstock.connectors.nats`, where PyFlink's programs import them."""

from penstock.connectors.nats import *
from penstock.connectors.nats import __all__ as __all__
