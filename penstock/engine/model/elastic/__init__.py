"""Jobs whose parallelism may change: what is asked for them, their defaults, and the records of their rescales."""
