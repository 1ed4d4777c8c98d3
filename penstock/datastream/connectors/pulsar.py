"""The names of `penstock.connectors.pulsar`, where PyFlink's programs import them."""

from penstock.connectors.pulsar import *
from penstock.connectors.pulsar import __all__ as __all__
from penstock.connectors.pulsar import __getattr__ as __getattr__
