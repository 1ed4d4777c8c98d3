"""Clients that connectors and formats share: HTTP of the standard library, and TLS."""
