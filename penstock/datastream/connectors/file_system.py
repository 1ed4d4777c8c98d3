"""The names of `penstock.connectors.file_system`, where PyFlink's programs import them."""

from penstock.connectors.file_system import *
from penstock.connectors.file_system import __all__ as __all__
from penstock.connectors.file_system import __getattr__ as __getattr__
