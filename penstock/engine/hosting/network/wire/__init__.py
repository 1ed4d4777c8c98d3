"""Authenticated connections, and the control messages that cross them."""
