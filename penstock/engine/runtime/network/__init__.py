"""Where a record is sent, as far as no socket is needed: partitioners, result partitions, input gates, memory."""
