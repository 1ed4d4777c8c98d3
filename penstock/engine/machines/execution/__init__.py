"""The ExecutionGraph: vertices, their attempts, regions, and the results between them."""
