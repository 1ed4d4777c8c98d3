"""What the connectors of message brokers share: partitions, values, positions that are committed, staged records."""
