"""Result partitions: what one task produces, kept in memory or in files until its consumers have read it."""
