"""The names of `penstock.connectors.sinks`, where PyFlink's programs import them."""

from penstock.connectors.sinks import CollectingSink, DiscardingSink

__all__ = ["CollectingSink", "DiscardingSink"]
