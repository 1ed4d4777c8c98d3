"""The names of `penstock.formats.json`, where PyFlink's programs import them."""

from penstock.formats.json import *
from penstock.formats.json import __all__ as __all__
