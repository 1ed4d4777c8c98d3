"""Redis streams as a source and as a sink. Needs redis (`penstock[redis]`) where a job is made and where it runs."""

from penstock.connectors.redis.sink import RedisStreamSink
from penstock.connectors.redis.source import RedisStreamSource

__all__ = ["RedisStreamSink", "RedisStreamSource"]
