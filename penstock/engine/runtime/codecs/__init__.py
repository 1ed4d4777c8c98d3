"""Python values to Arrow columns and to bytes, and back."""
