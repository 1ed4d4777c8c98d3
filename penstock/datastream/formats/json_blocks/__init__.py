"""Many JSON objects, a line each, read at once: by arithmetic where all have one form, as programs write them, else by msgspec."""
