"""Archives of jobs that have ended: the driver writes them, the history server reads and shows them."""
