"""Parts of the SQL sinks."""
