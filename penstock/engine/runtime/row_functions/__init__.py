"""Row functions that run on columns: what the bytecode of a function says, and the Python that is made of it."""
