"""Checkpoints on a file system: files of state, metadata, and what both must prove before they are used."""
