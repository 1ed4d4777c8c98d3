"""A program for each peer, which runs in the peer's own environment: only `checks` of this directory is known to it."""
