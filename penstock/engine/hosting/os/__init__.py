"""Files, threads, clock and waiting: what the engine asks of the operating system."""
