"""Formats of files and messages: pyflink.datastream.formats, and the readers behind them."""
