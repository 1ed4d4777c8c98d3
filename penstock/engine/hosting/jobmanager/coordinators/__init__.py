"""The driver's half of sources and sinks: enumerators of splits, and committers."""
