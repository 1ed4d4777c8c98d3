"""Counters, gauges, meters and histograms of the engine, their scopes, and the report in which they travel."""
