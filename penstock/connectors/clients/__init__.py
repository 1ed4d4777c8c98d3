"""Clients that connectors and formats share: HTTP of the standard library, TLS, and a deadline for calls."""
