"""What connectors are made of: the contracts of sources and sinks, polling readers, committing readers, staging sinks, message queues."""
