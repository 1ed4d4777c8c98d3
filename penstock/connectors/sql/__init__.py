"""Tables of SQL databases as sink: transactions, staged rows, values."""
