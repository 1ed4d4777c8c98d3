"""What talks to other systems: sources, sinks and lookups. Programs import them from `penstock.datastream.connectors`."""
