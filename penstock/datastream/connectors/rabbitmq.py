"""The names of `penstock.connectors.rabbitmq`, where PyFlink's programs import them."""

from penstock.connectors.rabbitmq import *
from penstock.connectors.rabbitmq import __all__ as __all__
