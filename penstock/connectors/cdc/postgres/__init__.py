"""PostgreSQL's side of change data capture: logical replication by pgoutput."""
