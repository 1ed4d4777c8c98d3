"""Operators that wait for calls: their queue, their retries."""
