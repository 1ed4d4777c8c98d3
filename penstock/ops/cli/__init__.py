"""The command line, and the tools that write generated pages of the documentation."""
