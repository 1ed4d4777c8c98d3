"""Row functions as kernels: each operation is one call of numpy or Arrow for a whole column, with the rows marked for which it is not Python's."""
