"""One task: the loop of its mailbox, its input, its chain of operators, its outputs."""
