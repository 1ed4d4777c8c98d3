"""The REST server of a driver: who may ask, which view answers, and operations that take their time."""
