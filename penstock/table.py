"""Stands where PyFlink has its Table API, and says what to use instead. Knows nothing. Source: pyflink.table."""

raise NotImplementedError(
    "pyflink.table has no counterpart in Penstock. Use Spark's SQL and DataFrames: env.from_spark(frame) makes a stream of one, "
    "stream.to_spark('view') a DataFrame of a stream, and StreamExecutionEnvironment has sources for what a Table would read."
)
