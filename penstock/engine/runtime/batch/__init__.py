"""What bounded input makes possible: records of a key together, and in the order of their time."""
