"""The names of `penstock.formats.registry`, where PyFlink's programs import them."""

from penstock.formats.registry import *
from penstock.formats.registry import __all__ as __all__
