"""From snapshots to JSON: the answers of Flink's REST API."""
