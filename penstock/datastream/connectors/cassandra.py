"""Cassandra has no connector here."""

from penstock.common.absent import OWN_SINK, absent

__getattr__ = absent(
    __name__,
    {
        **dict.fromkeys(
            (
                "CassandraCommitter",
                "CassandraFailureHandler",
                "CassandraSink",
                "ClusterBuilder",
                "ConsistencyLevel",
                "MapperOptions",
            ),
            OWN_SINK,
        ),
    },
)
