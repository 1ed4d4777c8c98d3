"""Avro has no schemas here yet."""

from penstock.common.absent import absent

__getattr__ = absent(
    __name__,
    {
        "AvroInputFormat": "Read the files with Spark (format avro) and take env.from_spark.",
        "AvroBulkWriters": "Write Parquet: FileSink.for_bulk_format with ParquetBulkWriters.",
        **dict.fromkeys(
            (
                "AvroRowDeserializationSchema",
                "AvroRowSerializationSchema",
                "AvroSchema",
                "GenericRecordAvroTypeInfo",
            ),
            "Use JsonRowDeserializationSchema and JsonRowSerializationSchema, or a schema of your own around fastavro.",
        ),
    },
)
