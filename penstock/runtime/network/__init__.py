"""Records between tasks, without sockets: partitioners, result partitions, input gates, memory."""
