"""The names of `penstock.formats.csv`, where PyFlink's programs import them."""

from penstock.formats.csv import *
from penstock.formats.csv import __all__ as __all__
