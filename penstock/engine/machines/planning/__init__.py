"""Computes which slots a program would get of a cluster before it runs: `penstock plan`."""
