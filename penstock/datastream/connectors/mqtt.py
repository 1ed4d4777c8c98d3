"""The names of `penstock.connectors.mqtt`, where PyFlink's programs import them."""

from penstock.connectors.mqtt import *
from penstock.connectors.mqtt import __all__ as __all__
