"""Row functions that run on columns: what the bytecode of a function says, the Python that is made of it, and how both are compared."""
