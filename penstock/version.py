"""The version. Source: pyflink.version."""

from penstock import __version__

__all__ = ["__version__"]
