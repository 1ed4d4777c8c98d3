"""Elasticsearch has no connector here."""

from penstock.common.absent import OWN_SINK, absent

__getattr__ = absent(
    __name__,
    {
        **dict.fromkeys(
            (
                "Elasticsearch6SinkBuilder",
                "Elasticsearch7SinkBuilder",
                "ElasticsearchEmitter",
                "ElasticsearchSink",
                "ElasticsearchSinkBuilderBase",
                "FlushBackoffType",
            ),
            OWN_SINK,
        ),
    },
)
